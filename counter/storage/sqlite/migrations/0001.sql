-- One row at creation: the origin of every shard's chain of fold records.
CREATE TABLE layouts (
    region      TEXT    NOT NULL,
    from_window INTEGER NOT NULL,
    window_ms   INTEGER NOT NULL,
    shards      INTEGER NOT NULL,
    lanes       INTEGER NOT NULL,
    PRIMARY KEY (region, from_window)
) WITHOUT ROWID;

-- A table with rowids: bodies are large, and the index alone answers which segments there are.
CREATE TABLE segments (
    region       TEXT    NOT NULL,
    shard        INTEGER NOT NULL,
    window       INTEGER NOT NULL,
    lane         INTEGER NOT NULL,
    namespace_id INTEGER NOT NULL,
    segment_id   BLOB    NOT NULL,
    event_count  INTEGER NOT NULL,
    body         BLOB    NOT NULL
);
CREATE UNIQUE INDEX segments_by_partition
    ON segments (region, shard, window, lane, namespace_id, segment_id, event_count);

CREATE TABLE closes (
    region         TEXT    NOT NULL PRIMARY KEY,
    closed_through INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE watermarks (
    region TEXT    NOT NULL,
    shard  INTEGER NOT NULL,
    window INTEGER NOT NULL,
    PRIMARY KEY (region, shard)
) WITHOUT ROWID;

CREATE TABLE folds (
    region             TEXT    NOT NULL,
    shard              INTEGER NOT NULL,
    from_window        INTEGER NOT NULL,
    to_window          INTEGER NOT NULL,
    segments           BLOB    NOT NULL,
    event_count        INTEGER NOT NULL,
    namespaces_version INTEGER NOT NULL,
    PRIMARY KEY (region, shard, from_window)
) WITHOUT ROWID;

-- The bucket keeps the counters of one shard's fold together.
-- count has no type: an integer while it fits in 64 bits, its decimal text beyond.
CREATE TABLE rollups (
    namespace_id   INTEGER NOT NULL,
    bucket         INTEGER NOT NULL,
    counter        TEXT    NOT NULL,
    region         TEXT    NOT NULL,
    count                  NOT NULL,
    epoch          INTEGER NOT NULL,
    cleared_at_ns  INTEGER NOT NULL,
    through_window INTEGER NOT NULL,
    PRIMARY KEY (namespace_id, bucket, counter, region)
) WITHOUT ROWID;

CREATE TABLE namespace_versions (
    version INTEGER NOT NULL PRIMARY KEY,
    body    BLOB    NOT NULL
);
