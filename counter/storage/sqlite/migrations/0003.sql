-- What a version is without its namespaces, as JSON, so that a list of versions reads no bodies:
-- a column behind the body would be found only through all of the body's pages, so this one is
-- before it. Versions of before have NULL: their bodies say it.
CREATE TABLE namespace_versions_with_about (
    version INTEGER NOT NULL PRIMARY KEY,
    about   BLOB,
    body    BLOB    NOT NULL
);
INSERT INTO namespace_versions_with_about (version, body)
    SELECT version, body FROM namespace_versions;
DROP TABLE namespace_versions;
ALTER TABLE namespace_versions_with_about RENAME TO namespace_versions;
