-- Flink SQL 2.3, exported by rxd from Tests/Flink/nexmark/q16.yaml, pipeline nexmark-q16.
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
  `channel` STRING,
  `day` TIMESTAMP_LTZ(9),
  `n` BIGINT,
  `low` BIGINT,
  `middle` BIGINT,
  `high` BIGINT,
  `bidders` BIGINT,
  `auctions` BIGINT
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/out.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

INSERT INTO `out`
SELECT
  `__key` AS `channel`,
  `__start` AS `day`,
  `__figure2` AS `n`,
  `__figure3` AS `low`,
  `__figure4` AS `middle`,
  `__figure5` AS `high`,
  `__figure6` AS `bidders`,
  `__figure7` AS `auctions`
FROM (
  SELECT
    COUNT(*) AS `__figure2`,
    COUNT(*) FILTER (WHERE `__if1`) AS `__figure3`,
    COUNT(*) FILTER (WHERE `__if2`) AS `__figure4`,
    COUNT(*) FILTER (WHERE `__if3`) AS `__figure5`,
    COUNT(DISTINCT `__value2`) AS `__figure6`,
    COUNT(DISTINCT `__value3`) AS `__figure7`,
    CAST(window_start AS TIMESTAMP_LTZ(9)) AS `__start`,
    `__key`,
    window_time AS `__time`
  FROM TABLE(TUMBLE((
    SELECT
      `channel` AS `__value1`,
      `bidder` AS `__value2`,
      `auction` AS `__value3`,
      `price` < 10000 AS `__if1`,
      `price` >= 10000 AND `price` < 1000000 AS `__if2`,
      `price` >= 1000000 AS `__if3`,
      `channel` AS `__key`,
      `__time`
    FROM `bids`
  ), DESCRIPTOR(`__time`), INTERVAL '1' DAY))
  GROUP BY window_start, window_end, window_time, `__key`
);
