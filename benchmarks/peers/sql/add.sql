-- One add ($1 token, $2 counter, $3 delta) in one transaction: it counts only if its token is new.
WITH fresh AS (
  INSERT INTO tokens (token) VALUES ($1) ON CONFLICT DO NOTHING RETURNING token
)
INSERT INTO counts (name, count) SELECT $2, $3 FROM fresh
ON CONFLICT (name) DO UPDATE SET count = counts.count + excluded.count
