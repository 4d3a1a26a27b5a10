CREATE TABLE tokens (token text PRIMARY KEY, made_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE counts (name text PRIMARY KEY, count bigint NOT NULL);
