-- Flink SQL 2.3, exported by rxd from Tests/Flink/pipelines/csv.yaml, pipeline csv.
-- It gives the rows of rxd for input that fits the schema, and keeps its event time to the millisecond.
SET 'execution.runtime-mode' = 'streaming';
SET 'table.local-time-zone' = 'UTC';
SET 'pipeline.auto-watermark-interval' = '0 ms';

CREATE TABLE `lines` (
  `name` STRING NOT NULL,
  `number` STRING NOT NULL,
  `note` STRING NOT NULL
) WITH (
  'connector' = 'filesystem',
  'path' = 'data/lines.csv',
  'format' = 'csv',
  'csv.field-delimiter' = ','
);

CREATE TABLE `out` (
  `name` STRING,
  `number` STRING,
  `note` STRING,
  `both` STRING
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/out.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `again` (
  `name` STRING,
  `number` STRING,
  `note` STRING
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/again.csv',
  'format' = 'csv'
);

EXECUTE STATEMENT SET BEGIN
INSERT INTO `out`
SELECT
  `name`,
  `number`,
  `note`,
  `both`
FROM (
  SELECT
    `name`,
    `number`,
    `note`,
    `name` || `number` AS `both`
  FROM `lines`
);

INSERT INTO `again`
SELECT
  `name`,
  `number`,
  `note`
FROM `lines`;
END;
