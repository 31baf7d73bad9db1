-- Flink SQL 2.3, exported by rxd from Tests/Flink/nexmark/q21.yaml, pipeline nexmark-q21.
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
  `auction` BIGINT,
  `bidder` BIGINT,
  `channel_id` STRING
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
  `channel_id`
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
    CASE WHEN TRANSLATE(`channel`, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'abcdefghijklmnopqrstuvwxyz') = 'apple' THEN '0' ELSE CASE WHEN TRANSLATE(`channel`, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'abcdefghijklmnopqrstuvwxyz') = 'google' THEN '1' ELSE CASE WHEN TRANSLATE(`channel`, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'abcdefghijklmnopqrstuvwxyz') = 'facebook' THEN '2' ELSE CASE WHEN TRANSLATE(`channel`, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'abcdefghijklmnopqrstuvwxyz') = 'baidu' THEN '3' ELSE COALESCE(REGEXP_EXTRACT(`url`, 'channel_id=([^&]*)', 1), '') END END END END AS `channel_id`,
    `__time`
  FROM `bids`
)
WHERE `channel_id` <> '';
