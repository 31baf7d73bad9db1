-- Flink SQL 2.3, exported by rxd from Tests/Flink/pipelines/gathering.yaml, pipeline gathering.
-- It gives the rows of rxd for input that fits the schema, and keeps its event time to the millisecond.
SET 'execution.runtime-mode' = 'batch';
SET 'table.local-time-zone' = 'UTC';
-- In batch execution no event is late: those that are later than 'lateness' count, and rxd rejects them.

CREATE TABLE `clicks` (
  `user` STRING NOT NULL,
  `n` BIGINT,
  `at` TIMESTAMP_LTZ(9) NOT NULL,
  `__time` AS CAST(`at` AS TIMESTAMP_LTZ(3)),
  WATERMARK FOR `__time` AS `__time` - INTERVAL '0 00:05:00.001' DAY(1) TO SECOND(3)
) WITH (
  'connector' = 'filesystem',
  'path' = 'data/clicks.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601',
  'json.fail-on-missing-field' = 'false'
);

CREATE TABLE `orders` (
  `id` BIGINT NOT NULL,
  `user` ROW<`name` STRING NOT NULL, `age` BIGINT NOT NULL, `mail` STRING> NOT NULL,
  `n` BIGINT NOT NULL,
  `m` BIGINT,
  `d` DOUBLE NOT NULL,
  `s` STRING NOT NULL,
  `b` BOOLEAN NOT NULL,
  `tags` ARRAY<STRING NOT NULL> NOT NULL,
  `at` TIMESTAMP_LTZ(9) NOT NULL
) WITH (
  'connector' = 'filesystem',
  'path' = 'data/orders.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601',
  'json.fail-on-missing-field' = 'false'
);

CREATE VIEW `users` AS
SELECT
  `user` AS `name`,
  `at`,
  `__time`
FROM `clicks`;

CREATE VIEW `names` AS
SELECT
  `at`,
  `user`.`name` AS `name`
FROM `orders`;

CREATE VIEW `all` AS
SELECT
  `name`,
  `at`
FROM (
  SELECT
    `name`,
    `at`
  FROM `users`
  UNION ALL
  SELECT
    `name`,
    `at`
  FROM `names`
);

CREATE TABLE `merged` (
  `name` STRING,
  `at` TIMESTAMP_LTZ(9)
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/merged.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `whole` (
  `n` BIGINT,
  `sum` BIGINT,
  `mean` DOUBLE,
  `users` BIGINT,
  `last` TIMESTAMP_LTZ(9)
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/whole.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `nothing` (
  `n` BIGINT,
  `sum` BIGINT,
  `mean` DOUBLE,
  `most` BIGINT
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/nothing.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `by-user` (
  `user` STRING,
  `n` BIGINT,
  `sum` BIGINT,
  `most` BIGINT
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/by-user.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `by-null` (
  `m` BIGINT,
  `n` BIGINT,
  `least` DOUBLE
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/by-null.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `two` (
  `name` STRING,
  `b` BOOLEAN,
  `n` BIGINT
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/two.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `again` (
  `groups` BIGINT,
  `most` BIGINT
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/again.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `windows` (
  `from` TIMESTAMP_LTZ(9),
  `n` BIGINT
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/windows.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `different` (
  `name` STRING
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/different.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

EXECUTE STATEMENT SET BEGIN
INSERT INTO `merged`
SELECT
  `name`,
  `at`
FROM `all`;

INSERT INTO `whole`
SELECT
  `__figure1` AS `n`,
  `__figure2` AS `sum`,
  `__figure3` AS `mean`,
  `__figure4` AS `users`,
  `__figure5` AS `last`
FROM (
  SELECT
    COUNT(*) AS `__figure1`,
    CAST(CAST(COALESCE(SUM(CAST(`n` AS DECIMAL(19, 0))), 0) AS STRING) AS BIGINT) AS `__figure2`,
    CAST(SUM(CAST(`n` AS DECIMAL(19, 0))) AS DOUBLE) / NULLIF(COUNT(`n`), 0) AS `__figure3`,
    COUNT(DISTINCT `user`) AS `__figure4`,
    MAX(`at`) AS `__figure5`
  FROM `clicks`
);

INSERT INTO `nothing`
SELECT
  `__figure1` AS `n`,
  `__figure2` AS `sum`,
  `__figure3` AS `mean`,
  `__figure4` AS `most`
FROM (
  SELECT
    COUNT(*) AS `__figure1`,
    CAST(CAST(COALESCE(SUM(CAST(`__value1` AS DECIMAL(19, 0))), 0) AS STRING) AS BIGINT) AS `__figure2`,
    CAST(SUM(CAST(`__value1` AS DECIMAL(19, 0))) AS DOUBLE) / NULLIF(COUNT(`__value1`), 0) AS `__figure3`,
    MAX(`__value1`) AS `__figure4`
  FROM (
    SELECT
      `n` AS `__value1`,
      `__time`
    FROM `clicks`
    WHERE `n` IS NOT DISTINCT FROM 99
  )
);

INSERT INTO `by-user`
SELECT
  `__key` AS `user`,
  `__figure2` AS `n`,
  `__figure3` AS `sum`,
  `__figure4` AS `most`
FROM (
  SELECT
    COUNT(*) AS `__figure2`,
    CAST(CAST(COALESCE(SUM(CAST(`n` AS DECIMAL(19, 0))), 0) AS STRING) AS BIGINT) AS `__figure3`,
    MAX(`n`) AS `__figure4`,
    `user` AS `__key`
  FROM `clicks`
  GROUP BY `user`
);

INSERT INTO `by-null`
SELECT
  `__key` AS `m`,
  `__figure2` AS `n`,
  `__figure3` AS `least`
FROM (
  SELECT
    COUNT(*) AS `__figure2`,
    MIN(`d`) AS `__figure3`,
    `m` AS `__key`
  FROM `orders`
  GROUP BY `m`
);

INSERT INTO `two`
SELECT
  `__key1` AS `name`,
  `__key2` AS `b`,
  `__figure3` AS `n`
FROM (
  SELECT
    COUNT(*) AS `__figure3`,
    `user`.`name` AS `__key1`,
    `b` AS `__key2`
  FROM `orders`
  GROUP BY `user`.`name`, `b`
);

INSERT INTO `again`
SELECT
  `__figure1` AS `groups`,
  `__figure2` AS `most`
FROM (
  SELECT
    COUNT(*) AS `__figure1`,
    MAX(`__figure2`) AS `__figure2`
  FROM (
    SELECT
      COUNT(*) AS `__figure2`,
      `user` AS `__key`
    FROM `clicks`
    GROUP BY `user`
  )
);

INSERT INTO `windows`
SELECT
  `__start` AS `from`,
  `__figure1` AS `n`
FROM (
  SELECT
    COUNT(*) AS `__figure1`,
    CAST(window_start AS TIMESTAMP_LTZ(9)) AS `__start`,
    window_time AS `__time`
  FROM TABLE(TUMBLE(TABLE `clicks`, DESCRIPTOR(`__time`), INTERVAL '1' MINUTE))
  GROUP BY window_start, window_end, window_time
);

INSERT INTO `different`
SELECT
  `name`
FROM (
  SELECT DISTINCT
    `name`
  FROM `names`
);
END;
