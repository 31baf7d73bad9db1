-- Flink SQL 2.3, exported by rxd from Tests/Flink/nexmark/q8.yaml, pipeline nexmark-q8.
-- It gives the rows of rxd for input that fits the schema, and keeps its event time to the millisecond.
SET 'execution.runtime-mode' = 'streaming';
SET 'table.local-time-zone' = 'UTC';
SET 'pipeline.auto-watermark-interval' = '0 ms';

CREATE TABLE `auctions` (
  `id` BIGINT NOT NULL,
  `item` STRING NOT NULL,
  `description` STRING NOT NULL,
  `initialBid` BIGINT NOT NULL,
  `reserve` BIGINT NOT NULL,
  `at` TIMESTAMP_LTZ(9) NOT NULL,
  `expires` TIMESTAMP_LTZ(9) NOT NULL,
  `seller` BIGINT NOT NULL,
  `category` BIGINT NOT NULL,
  `__time` AS CAST(`at` AS TIMESTAMP_LTZ(3)),
  WATERMARK FOR `__time` AS `__time` - INTERVAL '0 00:00:00.001' DAY(1) TO SECOND(3)
) WITH (
  'connector' = 'filesystem',
  'path' = 'data/auctions.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601',
  'json.fail-on-missing-field' = 'true'
);

CREATE TABLE `people` (
  `id` BIGINT NOT NULL,
  `name` STRING NOT NULL,
  `email` STRING NOT NULL,
  `card` STRING NOT NULL,
  `city` STRING NOT NULL,
  `state` STRING NOT NULL,
  `at` TIMESTAMP_LTZ(9) NOT NULL,
  `__time` AS CAST(`at` AS TIMESTAMP_LTZ(3)),
  WATERMARK FOR `__time` AS `__time` - INTERVAL '0 00:00:00.001' DAY(1) TO SECOND(3)
) WITH (
  'connector' = 'filesystem',
  'path' = 'data/people.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601',
  'json.fail-on-missing-field' = 'true'
);

CREATE VIEW `came` AS
SELECT
  `id`,
  `name`,
  EXTRACT(EPOCH FROM FLOOR(`at` TO SECOND)) / CAST(10 AS BIGINT) AS `window`,
  `__time`
FROM `people`;

CREATE VIEW `sold` AS
SELECT
  `seller`,
  `window`,
  `__time`
FROM (
  SELECT
    `seller`,
    `window`,
    `__time`,
    ROW_NUMBER() OVER (PARTITION BY `seller`, `window` ORDER BY `__arrival` ASC) AS `__row`
  FROM (
    SELECT *, PROCTIME() AS `__arrival`
    FROM (
      SELECT
        `seller`,
        EXTRACT(EPOCH FROM FLOOR(`at` TO SECOND)) / CAST(10 AS BIGINT) AS `window`,
        `__time`
      FROM `auctions`
    )
  )
)
WHERE `__row` = 1;

CREATE TABLE `out` (
  `id` BIGINT,
  `name` STRING,
  `window` BIGINT
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/out.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

INSERT INTO `out`
SELECT
  `id`,
  `name`,
  `window`
FROM (
  SELECT
    e.`id` AS `id`,
    e.`name` AS `name`,
    e.`window` AS `window`
  FROM `came` AS e
  JOIN `sold` AS o
    ON e.`id` = o.`seller`
    AND e.`window` = o.`window`
    AND o.`__time` BETWEEN e.`__time` - INTERVAL '10' SECOND AND e.`__time` + INTERVAL '10' SECOND
);
