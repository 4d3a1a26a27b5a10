SELECT name, count FROM counts WHERE name = ANY ($1::text[])
