-- Rows of version 1 have no total and no changed_window: NULL, and then their count and their
-- through_window are as near as anybody can know. Giving each its own would rewrite the table.
-- total has no type, as count: an integer while it fits in 64 bits, its decimal text beyond.
ALTER TABLE rollups ADD COLUMN total;
ALTER TABLE rollups ADD COLUMN changed_window INTEGER;
ALTER TABLE rollups ADD COLUMN first_window INTEGER NOT NULL DEFAULT -1;
ALTER TABLE rollups ADD COLUMN recent BLOB;

ALTER TABLE folds ADD COLUMN digest BLOB NOT NULL DEFAULT x'';
ALTER TABLE folds ADD COLUMN set_aside BLOB NOT NULL DEFAULT x'90'; -- an empty list in msgpack

-- Segments that an operator set aside.
CREATE TABLE set_asides (
    region     TEXT    NOT NULL,
    shard      INTEGER NOT NULL,
    segment_id BLOB    NOT NULL,
    window     INTEGER NOT NULL,
    decision   BLOB    NOT NULL,
    PRIMARY KEY (region, shard, segment_id)
) WITHOUT ROWID;

-- A counter's states at the end of past steps: the columns of rollups.
CREATE TABLE history (
    namespace_id   INTEGER NOT NULL,
    counter        TEXT    NOT NULL,
    region         TEXT    NOT NULL,
    step_ms        INTEGER NOT NULL,
    step           INTEGER NOT NULL,
    until_step     INTEGER NOT NULL,
    expires_at_ms  INTEGER NOT NULL,
    count                  NOT NULL,
    epoch          INTEGER NOT NULL,
    cleared_at_ns  INTEGER NOT NULL,
    through_window INTEGER NOT NULL,
    total                  NOT NULL,
    changed_window INTEGER NOT NULL,
    first_window   INTEGER NOT NULL,
    recent         BLOB,
    PRIMARY KEY (namespace_id, counter, region, step_ms, step)
) WITHOUT ROWID;
CREATE INDEX history_by_expiry ON history (region, expires_at_ms);

CREATE TABLE adjustments (
    namespace_id INTEGER NOT NULL,
    counter      TEXT    NOT NULL,
    region       TEXT    NOT NULL,
    time_ns      INTEGER NOT NULL,
    token        TEXT    NOT NULL,
    delta        INTEGER NOT NULL,
    author       TEXT    NOT NULL,
    reason       TEXT    NOT NULL,
    PRIMARY KEY (namespace_id, counter, region, time_ns, token)
) WITHOUT ROWID;
