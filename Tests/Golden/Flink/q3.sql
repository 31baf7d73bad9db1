-- Flink SQL 2.3, exported by rxd from Tests/Flink/nexmark/q3.yaml, pipeline nexmark-q3.
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

CREATE VIEW `offers` AS
SELECT
  `id`,
  `item`,
  `description`,
  `initialBid`,
  `reserve`,
  `at`,
  `expires`,
  `seller`,
  `category`,
  `__time`
FROM `auctions`
WHERE `category` = 10;

CREATE VIEW `sellers` AS
SELECT
  `id`,
  `name`,
  `email`,
  `card`,
  `city`,
  `state`,
  `at`,
  `__time`
FROM `people`
WHERE `state` IN ('OR', 'ID', 'CA');

CREATE TABLE `out` (
  `name` STRING,
  `city` STRING,
  `state` STRING,
  `id` BIGINT
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/out.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

INSERT INTO `out`
SELECT
  `name`,
  `city`,
  `state`,
  `id`
FROM (
  SELECT
    o.`name` AS `name`,
    o.`city` AS `city`,
    o.`state` AS `state`,
    e.`id` AS `id`
  FROM `offers` AS e
  JOIN `sellers` AS o
    ON e.`seller` = o.`id`
    AND o.`__time` BETWEEN e.`__time` - (INTERVAL '1' DAY * 3650) AND e.`__time` + (INTERVAL '1' DAY * 3650)
);
