-- Flink SQL 2.3, exported by rxd from Tests/Flink/nexmark/q10.yaml, pipeline nexmark-q10.
-- It gives the rows of rxd for input that fits the schema, and keeps its event time to the millisecond.
SET 'execution.runtime-mode' = 'streaming';
SET 'table.local-time-zone' = 'UTC';
SET 'pipeline.auto-watermark-interval' = '0 ms';

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
  `id` BIGINT,
  `auction` BIGINT,
  `bidder` BIGINT,
  `price` BIGINT,
  `channel` STRING,
  `url` STRING,
  `at` TIMESTAMP_LTZ(9),
  `extra` STRING,
  `day` STRING,
  `minute` STRING
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
  `auction`,
  `bidder`,
  `price`,
  `channel`,
  `url`,
  `at`,
  `extra`,
  `day`,
  `minute`
FROM (
  SELECT
    `id`,
    `auction`,
    `bidder`,
    `price`,
    `channel`,
    `url`,
    `at`,
    `extra`,
    DATE_FORMAT(`at`, 'yyyy-MM-dd') AS `day`,
    DATE_FORMAT(`at`, 'HH:mm') AS `minute`,
    `__time`
  FROM `bids`
);
