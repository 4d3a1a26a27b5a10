-- Many adds in one transaction. Tokens and counters are locked in the order of their names, so that
-- two transactions never wait for each other; a token that comes twice in one of them counts once.
WITH adds AS (
  SELECT DISTINCT ON (token) token, name, delta
  FROM unnest($1::text[], $2::text[], $3::bigint[]) AS given (token, name, delta)
  ORDER BY token
), fresh AS (
  INSERT INTO tokens (token) SELECT token FROM adds ON CONFLICT DO NOTHING RETURNING token
)
INSERT INTO counts (name, count)
SELECT name, sum(delta) FROM adds JOIN fresh USING (token) GROUP BY name ORDER BY name
ON CONFLICT (name) DO UPDATE SET count = counts.count + excluded.count
