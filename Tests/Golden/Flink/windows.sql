-- Flink SQL 2.3, exported by rxd from Tests/Flink/pipelines/windows.yaml, pipeline windows.
-- It gives the rows of rxd for input that fits the schema, and keeps its event time to the millisecond.
SET 'execution.runtime-mode' = 'streaming';
SET 'table.local-time-zone' = 'UTC';
SET 'pipeline.auto-watermark-interval' = '0 ms';

CREATE TABLE `clicks` (
  `user` STRING NOT NULL,
  `n` BIGINT,
  `at` TIMESTAMP_LTZ(9) NOT NULL,
  `__time` AS CAST(`at` AS TIMESTAMP_LTZ(3)),
  WATERMARK FOR `__time` AS `__time` - INTERVAL '0 00:00:02.001' DAY(1) TO SECOND(3)
) WITH (
  'connector' = 'filesystem',
  'path' = 'data/clicks.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601',
  'json.fail-on-missing-field' = 'false'
);

CREATE TABLE `tumbling` (
  `from` TIMESTAMP_LTZ(9),
  `to` TIMESTAMP_LTZ(9),
  `n` BIGINT,
  `known` BIGINT,
  `sum` BIGINT,
  `mean` DOUBLE,
  `least` BIGINT,
  `most` BIGINT,
  `users` BIGINT,
  `first` TIMESTAMP_LTZ(9)
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/tumbling.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `by-user` (
  `user` STRING,
  `who` STRING,
  `from` TIMESTAMP_LTZ(9),
  `ratio` DOUBLE,
  `large` BIGINT
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/by-user.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `sliding` (
  `user` STRING,
  `from` TIMESTAMP_LTZ(9),
  `n` BIGINT,
  `sum` BIGINT
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/sliding.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `sessions` (
  `user` STRING,
  `from` TIMESTAMP_LTZ(9),
  `to` TIMESTAMP_LTZ(9),
  `n` BIGINT
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/sessions.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `inclusive` (
  `from` TIMESTAMP_LTZ(9),
  `to` TIMESTAMP_LTZ(9),
  `n` BIGINT
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/inclusive.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `nested` (
  `from` TIMESTAMP_LTZ(9),
  `most` BIGINT,
  `windows` BIGINT
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/nested.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `failing` (
  `from` TIMESTAMP_LTZ(9),
  `sum` BIGINT,
  `n` BIGINT
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/failing.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

EXECUTE STATEMENT SET BEGIN
INSERT INTO `tumbling`
SELECT
  `__start` AS `from`,
  `__end` AS `to`,
  `__figure1` AS `n`,
  `__figure2` AS `known`,
  `__figure3` AS `sum`,
  `__figure4` AS `mean`,
  `__figure5` AS `least`,
  `__figure6` AS `most`,
  `__figure7` AS `users`,
  `__figure8` AS `first`
FROM (
  SELECT
    COUNT(*) AS `__figure1`,
    COUNT(*) FILTER (WHERE `__if1`) AS `__figure2`,
    CAST(CAST(COALESCE(SUM(CAST(`__value1` AS DECIMAL(19, 0))), 0) AS STRING) AS BIGINT) AS `__figure3`,
    CAST(SUM(CAST(`__value1` AS DECIMAL(19, 0))) AS DOUBLE) / NULLIF(COUNT(`__value1`), 0) AS `__figure4`,
    MIN(`__value1`) AS `__figure5`,
    MAX(`__value1`) AS `__figure6`,
    COUNT(DISTINCT `__value2`) AS `__figure7`,
    MIN(`__value3`) AS `__figure8`,
    CAST(window_start AS TIMESTAMP_LTZ(9)) AS `__start`,
    CAST(window_end AS TIMESTAMP_LTZ(9)) AS `__end`,
    window_time AS `__time`
  FROM TABLE(TUMBLE((
    SELECT
      `n` AS `__value1`,
      `user` AS `__value2`,
      `at` AS `__value3`,
      `n` IS NOT NULL AS `__if1`,
      `__time`
    FROM `clicks`
  ), DESCRIPTOR(`__time`), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end, window_time
);

INSERT INTO `by-user`
SELECT
  `user`,
  `who`,
  `from`,
  `ratio`,
  `large`
FROM (
  SELECT
    `__key` AS `user`,
    `__key` AS `who`,
    `__start` AS `from`,
    CAST(`__figure2` AS DOUBLE) / CAST(`__figure3` AS DOUBLE) AS `ratio`,
    `__figure4` AS `large`,
    `__key`,
    `__time`
  FROM (
    SELECT
      CAST(CAST(COALESCE(SUM(CAST(`__value2` AS DECIMAL(19, 0))), 0) AS STRING) AS BIGINT) AS `__figure2`,
      COUNT(*) AS `__figure3`,
      CAST(CAST(COALESCE(SUM(CAST(`__value2` AS DECIMAL(19, 0))) FILTER (WHERE `__if1`), 0) AS STRING) AS BIGINT) AS `__figure4`,
      CAST(window_start AS TIMESTAMP_LTZ(9)) AS `__start`,
      `__key`,
      window_time AS `__time`
    FROM TABLE(TUMBLE((
      SELECT
        `__value1`,
        `__value2`,
        `__if1`,
        `__key`,
        `__time`
      FROM (
        SELECT
          `__value1`,
          `__value2`,
          `__if1`,
          `__key`,
          `__time`
        FROM (
          SELECT
            `user` AS `__value1`,
            `n` AS `__value2`,
            `n` IS NOT NULL AND `n` > 5 AS `__if1`,
            `user` AS `__key`,
            `__time`
          FROM `clicks`
        )
      )
      WHERE `__if1` IS NOT NULL
    ), DESCRIPTOR(`__time`), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end, window_time, `__key`
  )
);

INSERT INTO `sliding`
SELECT
  `__key` AS `user`,
  `__start` AS `from`,
  `__figure2` AS `n`,
  `__figure3` AS `sum`
FROM (
  SELECT
    COUNT(*) AS `__figure2`,
    CAST(CAST(COALESCE(SUM(CAST(`__value2` AS DECIMAL(19, 0))), 0) AS STRING) AS BIGINT) AS `__figure3`,
    CAST(window_start AS TIMESTAMP_LTZ(9)) AS `__start`,
    `__key`,
    window_time AS `__time`
  FROM TABLE(HOP((
    SELECT
      `user` AS `__value1`,
      `n` AS `__value2`,
      `user` AS `__key`,
      `__time`
    FROM `clicks`
    WHERE `n` IS NOT NULL
  ), DESCRIPTOR(`__time`), INTERVAL '5' SECOND, INTERVAL '15' SECOND))
  GROUP BY window_start, window_end, window_time, `__key`
);

INSERT INTO `sessions`
SELECT
  `__key` AS `user`,
  `__start` AS `from`,
  `__end` AS `to`,
  `__figure2` AS `n`
FROM (
  SELECT
    COUNT(*) AS `__figure2`,
    CAST(MIN(`__time`) AS TIMESTAMP_LTZ(9)) AS `__start`,
    CAST(MAX(`__time`) AS TIMESTAMP_LTZ(9)) AS `__end`,
    `user` AS `__key`,
    window_time AS `__time`
  FROM TABLE(SESSION(TABLE `clicks` PARTITION BY (`user`), DESCRIPTOR(`__time`), INTERVAL '0 00:00:09.999' DAY(1) TO SECOND(3)))
  GROUP BY window_start, window_end, window_time, `user`
);

INSERT INTO `inclusive`
SELECT
  `__start` AS `from`,
  `__end` AS `to`,
  `__figure1` AS `n`
FROM (
  SELECT
    COUNT(*) AS `__figure1`,
    CAST(MIN(`__time`) AS TIMESTAMP_LTZ(9)) AS `__start`,
    CAST(MAX(`__time`) AS TIMESTAMP_LTZ(9)) AS `__end`,
    window_time AS `__time`
  FROM TABLE(SESSION(TABLE `clicks`, DESCRIPTOR(`__time`), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end, window_time
);

INSERT INTO `nested`
SELECT
  `__start` AS `from`,
  `__figure1` AS `most`,
  `__figure2` AS `windows`
FROM (
  SELECT
    MAX(`__value1`) AS `__figure1`,
    COUNT(*) AS `__figure2`,
    CAST(window_start AS TIMESTAMP_LTZ(9)) AS `__start`,
    window_time AS `__time`
  FROM TABLE(TUMBLE((
    SELECT
      `__figure2` AS `__value1`,
      `__time`
    FROM (
      SELECT
        COUNT(*) AS `__figure2`,
        `user` AS `__key`,
        window_time AS `__time`
      FROM TABLE(TUMBLE(TABLE `clicks`, DESCRIPTOR(`__time`), INTERVAL '10' SECOND))
      GROUP BY window_start, window_end, window_time, `user`
    )
    WHERE `__figure2` > 0
  ), DESCRIPTOR(`__time`), INTERVAL '1' MINUTE))
  GROUP BY window_start, window_end, window_time
);

INSERT INTO `failing`
SELECT
  `__start` AS `from`,
  `__figure1` AS `sum`,
  `__figure2` AS `n`
FROM (
  SELECT
    CAST(CAST(COALESCE(SUM(CAST(`__value1` AS DECIMAL(19, 0))), 0) AS STRING) AS BIGINT) AS `__figure1`,
    COUNT(*) AS `__figure2`,
    CAST(window_start AS TIMESTAMP_LTZ(9)) AS `__start`,
    window_time AS `__time`
  FROM TABLE(TUMBLE((
    SELECT
      `__value1`,
      `__time`
    FROM (
      SELECT
        `__value1`,
        `__time`
      FROM (
        SELECT
          TRY_CAST(CAST(CAST(`n` AS DECIMAL(19, 0)) + CAST(1 AS DECIMAL(19, 0)) AS STRING) AS BIGINT) AS `__value1`,
          `__time`
        FROM `clicks`
      )
    )
    WHERE `__value1` IS NOT NULL
  ), DESCRIPTOR(`__time`), INTERVAL '1' MINUTE))
  GROUP BY window_start, window_end, window_time
);
END;
