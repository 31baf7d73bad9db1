-- Flink SQL 2.3, exported by rxd from Tests/Flink/nexmark/q19.yaml, pipeline nexmark-q19.
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
  `auction` BIGINT NOT NULL,
  `id` BIGINT NOT NULL,
  `bidder` BIGINT,
  `price` BIGINT,
  PRIMARY KEY (`auction`, `id`) NOT ENFORCED
) WITH (
  -- The sink 'sqlite' of rxd: name a connector and its options here.
  'connector' = '...'
);

INSERT INTO `out`
SELECT
  `auction`,
  `id`,
  `bidder`,
  `price`
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
    `__time`,
    ROW_NUMBER() OVER (PARTITION BY `auction` ORDER BY `price` DESC, `__time` ASC) AS `__row`
  FROM `bids`
)
WHERE `__row` <= 10
ON CONFLICT DO DEDUPLICATE;
