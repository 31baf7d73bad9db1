-- Flink SQL 2.3, exported by rxd from Tests/Flink/pipelines/joins.yaml, pipeline joins.
-- It gives the rows of rxd for input that fits the schema, and keeps its event time to the millisecond.
SET 'execution.runtime-mode' = 'streaming';
SET 'table.local-time-zone' = 'UTC';
SET 'pipeline.auto-watermark-interval' = '0 ms';

CREATE TABLE `placed` (
  `at` TIMESTAMP_LTZ(9) NOT NULL,
  `id` BIGINT NOT NULL,
  `__time` AS CAST(`at` AS TIMESTAMP_LTZ(3)),
  WATERMARK FOR `__time` AS `__time` - INTERVAL '0 00:00:00.001' DAY(1) TO SECOND(3)
) WITH (
  'connector' = 'filesystem',
  'path' = 'data/placed.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601',
  'json.fail-on-missing-field' = 'true'
);

CREATE TABLE `payments` (
  `at` TIMESTAMP_LTZ(9) NOT NULL,
  `order` BIGINT NOT NULL,
  `via` STRING,
  `__time` AS CAST(`at` AS TIMESTAMP_LTZ(3)),
  WATERMARK FOR `__time` AS `__time` - INTERVAL '0 00:05:00.001' DAY(1) TO SECOND(3)
) WITH (
  'connector' = 'filesystem',
  'path' = 'data/payments.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601',
  'json.fail-on-missing-field' = 'false'
);

CREATE TABLE `inner` (
  `order` BIGINT,
  `placed` TIMESTAMP_LTZ(9),
  `paid` TIMESTAMP_LTZ(9),
  `via` STRING
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/inner.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `left` (
  `order` BIGINT,
  `paid` TIMESTAMP_LTZ(9)
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/left.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `right` (
  `order` BIGINT,
  `at` TIMESTAMP_LTZ(9)
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/right.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `full` (
  `paid` BIGINT
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/full.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `counted` (
  `from` TIMESTAMP_LTZ(9),
  `n` BIGINT,
  `last` TIMESTAMP_LTZ(9),
  `placed` TIMESTAMP_LTZ(9)
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/counted.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE VIEW `versions_versions` AS
SELECT
  `at`,
  `id`,
  `__key`,
  `__time`
FROM (
  SELECT
    `at`,
    `id`,
    `__key`,
    `__time`,
    ROW_NUMBER() OVER (PARTITION BY `__key` ORDER BY `__time` DESC) AS `__row`
  FROM (
    SELECT
      `at`,
      `id`,
      `id` AS `__key`,
      `__time`
    FROM `placed`
  )
)
WHERE `__row` = 1;

CREATE TABLE `versions` (
  `order` BIGINT,
  `at` TIMESTAMP_LTZ(9),
  `since` TIMESTAMP_LTZ(9)
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/versions.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE VIEW `versions-left_versions` AS
SELECT
  `at`,
  `id`,
  `__key`,
  `__time`
FROM (
  SELECT
    `at`,
    `id`,
    `__key`,
    `__time`,
    ROW_NUMBER() OVER (PARTITION BY `__key` ORDER BY `__time` DESC) AS `__row`
  FROM (
    SELECT
      `at`,
      `id`,
      `id` AS `__key`,
      `__time`
    FROM `placed`
  )
)
WHERE `__row` = 1;

CREATE TABLE `versions-left` (
  `order` BIGINT,
  `at` TIMESTAMP_LTZ(9),
  `since` TIMESTAMP_LTZ(9)
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/versions-left.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `typed` (
  `order` BIGINT,
  `at` TIMESTAMP_LTZ(9),
  `paid` TIMESTAMP_LTZ(9)
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/typed.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

EXECUTE STATEMENT SET BEGIN
INSERT INTO `inner`
SELECT
  `order`,
  `placed`,
  `paid`,
  `via`
FROM (
  SELECT
    e.`id` AS `order`,
    e.`at` AS `placed`,
    o.`at` AS `paid`,
    o.`via` AS `via`
  FROM `placed` AS e
  JOIN `payments` AS o
    ON e.`id` = o.`order`
    AND o.`__time` BETWEEN e.`__time` - INTERVAL '10' MINUTE AND e.`__time` + INTERVAL '10' MINUTE
);

INSERT INTO `left`
SELECT
  `order`,
  `paid`
FROM (
  SELECT
    e.`id` AS `order`,
    CASE WHEN o.`__time` IS NULL THEN CAST(NULL AS TIMESTAMP_LTZ(9)) ELSE o.`at` END AS `paid`
  FROM `placed` AS e
  LEFT JOIN `payments` AS o
    ON e.`id` = o.`order`
    AND o.`__time` BETWEEN e.`__time` - INTERVAL '0 00:00:00.000' DAY(1) TO SECOND(3) AND e.`__time` + INTERVAL '10' MINUTE
);

INSERT INTO `right`
SELECT
  `order`,
  `at`
FROM (
  SELECT
    o.`order` AS `order`,
    o.`at` AS `at`
  FROM `placed` AS e
  RIGHT JOIN `payments` AS o
    ON e.`id` = o.`order`
    AND o.`__time` BETWEEN e.`__time` - INTERVAL '5' MINUTE AND e.`__time` + INTERVAL '0 00:00:00.000' DAY(1) TO SECOND(3)
);

INSERT INTO `full`
SELECT
  `paid`
FROM (
  SELECT
    CASE WHEN o.`__time` IS NULL THEN CAST(0 AS BIGINT) ELSE o.`order` END AS `paid`
  FROM (
    SELECT
      `at`,
      `id`,
      CAST(`id` AS STRING) AS `__key`,
      `__time`
    FROM `placed`
  ) AS e
  FULL JOIN (
    SELECT
      `at`,
      `order`,
      `via`,
      CAST(`order` AS STRING) AS `__key`,
      `__time`
    FROM `payments`
  ) AS o
    ON e.`__key` = o.`__key`
    AND o.`__time` BETWEEN e.`__time` - INTERVAL '10' MINUTE AND e.`__time` + INTERVAL '10' MINUTE
);

INSERT INTO `counted`
SELECT
  `__start` AS `from`,
  `__figure1` AS `n`,
  `__figure2` AS `last`,
  `__figure3` AS `placed`
FROM (
  SELECT
    COUNT(*) AS `__figure1`,
    MAX(`pair.other.at`) AS `__figure2`,
    MIN(`pair.event.at`) AS `__figure3`,
    CAST(window_start AS TIMESTAMP_LTZ(9)) AS `__start`,
    window_time AS `__time`
  FROM TABLE(TUMBLE((
    SELECT
      e.`id` AS `order`,
      e.`at` AS `pair.event.at`,
      e.`id` AS `pair.event.id`,
      o.`at` AS `pair.other.at`,
      o.`order` AS `pair.other.order`,
      o.`via` AS `pair.other.via`,
      o.`__time` AS `__time`
    FROM `placed` AS e
    JOIN `payments` AS o
      ON e.`id` = o.`order`
      AND o.`__time` BETWEEN e.`__time` - INTERVAL '0 00:00:00.000' DAY(1) TO SECOND(3) AND e.`__time` + INTERVAL '10' MINUTE
  ), DESCRIPTOR(`__time`), INTERVAL '10' MINUTE))
  GROUP BY window_start, window_end, window_time
);

INSERT INTO `versions`
SELECT
  `order`,
  `at`,
  `since`
FROM (
  SELECT
    e.`order` AS `order`,
    e.`at` AS `at`,
    o.`at` AS `since`,
    e.`__time` AS `__time`
  FROM `payments` AS e
  JOIN `versions_versions` FOR SYSTEM_TIME AS OF e.`__time` AS o
    ON e.`order` = o.`__key`
);

INSERT INTO `versions-left`
SELECT
  `order`,
  `at`,
  `since`
FROM (
  SELECT
    e.`order` AS `order`,
    e.`at` AS `at`,
    CASE WHEN o.`__time` IS NULL THEN CAST(NULL AS TIMESTAMP_LTZ(9)) ELSE o.`at` END AS `since`,
    e.`__time` AS `__time`
  FROM `payments` AS e
  LEFT JOIN `versions-left_versions` FOR SYSTEM_TIME AS OF e.`__time` AS o
    ON e.`order` = o.`__key`
);

INSERT INTO `typed`
SELECT
  `order`,
  `at`,
  `paid`
FROM (
  SELECT
    e.`id` AS `order`,
    e.`at` AS `at`,
    o.`at` AS `paid`
  FROM `placed` AS e
  JOIN `payments` AS o
    ON e.`id` = o.`order`
    AND o.`__time` BETWEEN e.`__time` - INTERVAL '1' HOUR AND e.`__time` + INTERVAL '1' HOUR
)
WHERE `paid` > `at`;
END;
