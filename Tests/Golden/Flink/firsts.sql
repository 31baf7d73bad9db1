-- Flink SQL 2.3, exported by rxd from Tests/Flink/pipelines/firsts.yaml, pipeline firsts.
-- It gives the rows of rxd for input that fits the schema, and keeps its event time to the millisecond.
SET 'execution.runtime-mode' = 'streaming';
SET 'table.local-time-zone' = 'UTC';
SET 'pipeline.auto-watermark-interval' = '0 ms';

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

CREATE TABLE `by-user` (
  `user` STRING,
  `n` BIGINT,
  `at` TIMESTAMP_LTZ(9)
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/by-user.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `whole` (
  `user` STRING,
  `n` BIGINT,
  `at` TIMESTAMP_LTZ(9)
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/whole.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `counted` (
  `from` TIMESTAMP_LTZ(9),
  `n` BIGINT
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/counted.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `in-group` (
  `user` STRING,
  `n` BIGINT,
  `at` TIMESTAMP_LTZ(9)
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/in-group.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

EXECUTE STATEMENT SET BEGIN
INSERT INTO `by-user`
SELECT
  `user`,
  `n`,
  `at`
FROM (
  SELECT
    `user`,
    `n`,
    `at`,
    `__time`,
    ROW_NUMBER() OVER (PARTITION BY `user` ORDER BY `__arrival` ASC) AS `__row`
  FROM (
    SELECT *, PROCTIME() AS `__arrival`
    FROM `clicks`
  )
)
WHERE `__row` = 1;

INSERT INTO `whole`
SELECT
  `user`,
  `n`,
  `at`
FROM (
  SELECT
    `user`,
    `n`,
    `at`,
    `__time`,
    ROW_NUMBER() OVER (PARTITION BY `user`, `n` ORDER BY `__arrival` ASC) AS `__row`
  FROM (
    SELECT *, PROCTIME() AS `__arrival`
    FROM `clicks`
  )
)
WHERE `__row` = 1;

INSERT INTO `counted`
SELECT
  `__start` AS `from`,
  `__figure1` AS `n`
FROM (
  SELECT
    COUNT(*) AS `__figure1`,
    CAST(window_start AS TIMESTAMP_LTZ(9)) AS `__start`,
    window_time AS `__time`
  FROM TABLE(TUMBLE((
    SELECT
      1 AS `__one`,
      `__time`
    FROM (
      SELECT
        `user`,
        `n`,
        `at`,
        `__time`,
        ROW_NUMBER() OVER (PARTITION BY `user`, `n` ORDER BY `__arrival` ASC) AS `__row`
      FROM (
        SELECT *, PROCTIME() AS `__arrival`
        FROM `clicks`
      )
    )
    WHERE `__row` = 1
  ), DESCRIPTOR(`__time`), INTERVAL '1' MINUTE))
  GROUP BY window_start, window_end, window_time
);

INSERT INTO `in-group`
SELECT
  `user`,
  `n`,
  `at`
FROM (
  SELECT
    `user`,
    `n`,
    `at`,
    `user` AS `__key`,
    `__time`,
    ROW_NUMBER() OVER (PARTITION BY `n`, `user` ORDER BY `__arrival` ASC) AS `__row`
  FROM (
    SELECT *, PROCTIME() AS `__arrival`
    FROM `clicks`
  )
)
WHERE `__row` = 1;
END;
