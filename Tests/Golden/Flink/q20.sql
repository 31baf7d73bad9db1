-- Flink SQL 2.3, exported by rxd from Tests/Flink/nexmark/q20.yaml, pipeline nexmark-q20.
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

CREATE TABLE `bids` (
  `id` BIGINT NOT NULL,
  `auction` BIGINT NOT NULL,
  `bidder` BIGINT NOT NULL,
  `price` BIGINT NOT NULL,
  `channel` STRING NOT NULL,
  `url` STRING NOT NULL,
  `at` TIMESTAMP_LTZ(9) NOT NULL,
  `extra` STRING NOT NULL,
  `__time` AS CAST(`at` AS TIMESTAMP_LTZ(3)),
  WATERMARK FOR `__time` AS `__time` - INTERVAL '0 00:00:00.001' DAY(1) TO SECOND(3)
) WITH (
  'connector' = 'filesystem',
  'path' = 'data/bids.ndjson',
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

CREATE TABLE `out` (
  `auction` BIGINT,
  `bidder` BIGINT,
  `price` BIGINT,
  `item` STRING,
  `seller` BIGINT
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/out.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

INSERT INTO `out`
SELECT
  `auction`,
  `bidder`,
  `price`,
  `item`,
  `seller`
FROM (
  SELECT
    e.`auction` AS `auction`,
    e.`bidder` AS `bidder`,
    e.`price` AS `price`,
    o.`item` AS `item`,
    o.`seller` AS `seller`
  FROM `bids` AS e
  JOIN `offers` AS o
    ON e.`auction` = o.`id`
    AND o.`__time` BETWEEN e.`__time` - (INTERVAL '1' DAY * 3650) AND e.`__time` + (INTERVAL '1' DAY * 3650)
);
