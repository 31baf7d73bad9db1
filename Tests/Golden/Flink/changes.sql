-- Flink SQL 2.3, exported by rxd from Tests/Flink/pipelines/changes.yaml, pipeline changes.
-- It gives the rows of rxd for input that fits the schema, and keeps its event time to the millisecond.
SET 'execution.runtime-mode' = 'streaming';
SET 'table.local-time-zone' = 'UTC';
SET 'pipeline.auto-watermark-interval' = '0 ms';

CREATE TABLE `clicks` (
  `user` STRING NOT NULL,
  `n` BIGINT,
  `at` TIMESTAMP_LTZ(9) NOT NULL,
  `__time` AS CAST(`at` AS TIMESTAMP_LTZ(3)),
  WATERMARK FOR `__time` AS `__time` - INTERVAL '0 00:05:00.001' DAY(1) TO SECOND(3)
) WITH (
  'connector' = 'filesystem',
  'path' = 'data/clicks.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601',
  'json.fail-on-missing-field' = 'false'
);

CREATE TABLE `out` (
  `user` STRING NOT NULL,
  `n` BIGINT,
  `sum` BIGINT,
  PRIMARY KEY (`user`) NOT ENFORCED
) WITH (
  -- The sink 'sqlite' of rxd: name a connector and its options here.
  'connector' = '...'
);

INSERT INTO `out`
SELECT
  `__key` AS `user`,
  `__figure2` AS `n`,
  `__figure3` AS `sum`
FROM (
  SELECT
    COUNT(*) AS `__figure2`,
    CAST(CAST(COALESCE(SUM(CAST(`n` AS DECIMAL(19, 0))), 0) AS STRING) AS BIGINT) AS `__figure3`,
    `user` AS `__key`
  FROM `clicks`
  GROUP BY `user`
);
