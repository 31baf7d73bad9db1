-- Flink SQL 2.3, exported by rxd from Tests/Flink/nexmark/q9.yaml, pipeline nexmark-q9.
-- It gives the rows of rxd for input that fits the schema, and keeps its event time to the millisecond.
SET 'execution.runtime-mode' = 'batch';
SET 'table.local-time-zone' = 'UTC';
-- In batch execution no event is late: those that are later than 'lateness' count, and rxd rejects them.

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

CREATE TABLE `out` (
  `auction` BIGINT,
  `price` BIGINT
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/out.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

INSERT INTO `out`
SELECT
  `__key` AS `auction`,
  `__figure2` AS `price`
FROM (
  SELECT
    MAX(`__value2`) AS `__figure2`,
    `__key`
  FROM (
    SELECT
      `id` AS `__value1`,
      `price` AS `__value2`,
      `id` AS `__key`
    FROM (
      SELECT
        o.`id` AS `id`,
        o.`category` AS `category`,
        e.`price` AS `price`,
        e.`at` AS `at`,
        o.`at` AS `from`,
        o.`expires` AS `to`
      FROM `bids` AS e
      JOIN `auctions` AS o
        ON e.`auction` = o.`id`
        AND o.`__time` BETWEEN e.`__time` - INTERVAL '20' SECOND AND e.`__time` + INTERVAL '20' SECOND
    )
    WHERE (`at` >= `from` AND `at` <= `to`)
  )
  GROUP BY `__key`
);
