-- Flink SQL 2.3, exported by rxd from Tests/Flink/nexmark/q17.yaml, pipeline nexmark-q17.
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
  `day` TIMESTAMP_LTZ(9),
  `n` BIGINT,
  `least` BIGINT,
  `most` BIGINT,
  `mean` DOUBLE,
  `sum` BIGINT
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
  `__start` AS `day`,
  `__figure2` AS `n`,
  `__figure3` AS `least`,
  `__figure4` AS `most`,
  `__figure5` AS `mean`,
  `__figure6` AS `sum`
FROM (
  SELECT
    COUNT(*) AS `__figure2`,
    MIN(`price`) AS `__figure3`,
    MAX(`price`) AS `__figure4`,
    CAST(SUM(CAST(`price` AS DECIMAL(19, 0))) AS DOUBLE) / NULLIF(COUNT(`price`), 0) AS `__figure5`,
    CAST(CAST(COALESCE(SUM(CAST(`price` AS DECIMAL(19, 0))), 0) AS STRING) AS BIGINT) AS `__figure6`,
    CAST(window_start AS TIMESTAMP_LTZ(9)) AS `__start`,
    `auction` AS `__key`,
    window_time AS `__time`
  FROM TABLE(TUMBLE(TABLE `bids`, DESCRIPTOR(`__time`), INTERVAL '1' DAY))
  GROUP BY window_start, window_end, window_time, `auction`
);
