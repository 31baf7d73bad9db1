-- Flink SQL 2.3, exported by rxd from Tests/Flink/pipelines/expressions.yaml, pipeline expressions.
-- It gives the rows of rxd for input that fits the schema, and keeps its event time to the millisecond.
SET 'execution.runtime-mode' = 'streaming';
SET 'table.local-time-zone' = 'UTC';
SET 'pipeline.auto-watermark-interval' = '0 ms';

CREATE TABLE `orders` (
  `id` BIGINT NOT NULL,
  `user` ROW<`name` STRING NOT NULL, `age` BIGINT NOT NULL, `mail` STRING> NOT NULL,
  `n` BIGINT NOT NULL,
  `m` BIGINT,
  `d` DOUBLE NOT NULL,
  `s` STRING NOT NULL,
  `b` BOOLEAN NOT NULL,
  `tags` ARRAY<STRING NOT NULL> NOT NULL,
  `at` TIMESTAMP_LTZ(9) NOT NULL
) WITH (
  'connector' = 'filesystem',
  'path' = 'data/orders.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601',
  'json.fail-on-missing-field' = 'false'
);

CREATE TABLE `whole` (
  `id` BIGINT,
  `user` ROW<`name` STRING NOT NULL, `age` BIGINT NOT NULL, `old` BOOLEAN NOT NULL>,
  `n` BIGINT,
  `m` BIGINT,
  `d` DOUBLE,
  `s` STRING,
  `b` BOOLEAN,
  `at` TIMESTAMP_LTZ(9),
  `next` BIGINT
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/whole.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `sums` (
  `id` BIGINT,
  `sum` BIGINT
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/sums.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `differences` (
  `id` BIGINT,
  `less` BIGINT
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/differences.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `products` (
  `id` BIGINT,
  `product` BIGINT
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/products.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `doubled` (
  `id` BIGINT,
  `product` BIGINT
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/doubled.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `negated` (
  `id` BIGINT,
  `negative` BIGINT,
  `floating` DOUBLE
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/negated.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `nulls` (
  `id` BIGINT,
  `sum` BIGINT
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/nulls.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `tried` (
  `id` BIGINT,
  `sum` BIGINT,
  `m` BIGINT,
  `other` BIGINT,
  `mail` STRING,
  `kept` STRING
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/tried.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `numbers` (
  `id` BIGINT,
  `half` BIGINT,
  `rest` BIGINT,
  `bound` BIGINT,
  `double` DOUBLE,
  `infinite` DOUBLE,
  `text` STRING,
  `seconds` BIGINT
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/numbers.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `texts` (
  `id` BIGINT,
  `size` BIGINT,
  `lower` STRING,
  `upper` STRING,
  `starts` BOOLEAN,
  `ends` BOOLEAN,
  `contains` BOOLEAN,
  `first` STRING,
  `parts` BIGINT,
  `replaced` STRING,
  `channel` STRING,
  `whole` STRING,
  `matches` BOOLEAN,
  `quoted` STRING
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/texts.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `second` (
  `id` BIGINT,
  `part` STRING
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/second.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `times` (
  `id` BIGINT,
  `at` TIMESTAMP_LTZ(9),
  `year` BIGINT,
  `month` BIGINT,
  `date` BIGINT,
  `day` BIGINT,
  `hour` BIGINT,
  `minute` BIGINT,
  `second` BIGINT,
  `text` STRING,
  `short` STRING,
  `later` BOOLEAN,
  `same` BOOLEAN
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/times.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `conditions` (
  `id` BIGINT,
  `equal` BOOLEAN,
  `unequal` BOOLEAN,
  `mail` BOOLEAN,
  `both` BOOLEAN,
  `known` BOOLEAN,
  `kind` STRING,
  `small` BOOLEAN,
  `name` BOOLEAN
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/conditions.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `failing` (
  `id` BIGINT,
  `user` ROW<`name` STRING NOT NULL, `age` BIGINT NOT NULL, `mail` STRING>,
  `n` BIGINT,
  `m` BIGINT,
  `d` DOUBLE,
  `s` STRING,
  `b` BOOLEAN,
  `tags` ARRAY<STRING NOT NULL>,
  `at` TIMESTAMP_LTZ(9)
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/failing.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `negative` (
  `id` BIGINT,
  `user` ROW<`name` STRING NOT NULL, `age` BIGINT NOT NULL, `mail` STRING>,
  `n` BIGINT,
  `m` BIGINT,
  `d` DOUBLE,
  `s` STRING,
  `b` BOOLEAN,
  `tags` ARRAY<STRING NOT NULL>,
  `at` TIMESTAMP_LTZ(9)
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/negative.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE `nested` (
  `b` ROW<`name` STRING NOT NULL, `age` BIGINT NOT NULL, `mail` STRING>,
  `c` BIGINT
) WITH (
  -- Flink writes files below a directory of this name.
  'connector' = 'filesystem',
  'path' = 'out/nested.ndjson',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

EXECUTE STATEMENT SET BEGIN
INSERT INTO `whole`
SELECT
  `id`,
  CAST(ROW(`user.name`, `user.age`, `user.old`) AS ROW<`name` STRING NOT NULL, `age` BIGINT NOT NULL, `old` BOOLEAN NOT NULL>) AS `user`,
  `n`,
  `m`,
  `d`,
  `s`,
  `b`,
  `at`,
  `next`
FROM (
  SELECT
    `id`,
    `user`.`name` AS `user.name`,
    `user`.`age` AS `user.age`,
    `user`.`age` > 30 AS `user.old`,
    `n`,
    `m`,
    `d`,
    `s`,
    `b`,
    `at`,
    MOD(`n`, CAST(1000 AS BIGINT)) + CAST(1 AS BIGINT) AS `next`
  FROM `orders`
);

INSERT INTO `sums`
SELECT
  `id`,
  `sum`
FROM (
  SELECT
    `id`,
    TRY_CAST(CAST(CAST(`n` AS DECIMAL(19, 0)) + CAST(`user`.`age` AS DECIMAL(19, 0)) AS STRING) AS BIGINT) AS `sum`
  FROM `orders`
)
WHERE `sum` IS NOT NULL;

INSERT INTO `differences`
SELECT
  `id`,
  `less`
FROM (
  SELECT
    `id`,
    TRY_CAST(CAST(CAST(TRY_CAST(CAST(CAST(`n` AS DECIMAL(19, 0)) - CAST(`user`.`age` AS DECIMAL(19, 0)) AS STRING) AS BIGINT) AS DECIMAL(19, 0)) - CAST(1 AS DECIMAL(19, 0)) AS STRING) AS BIGINT) AS `less`
  FROM `orders`
)
WHERE `less` IS NOT NULL;

INSERT INTO `products`
SELECT
  `id`,
  `product`
FROM (
  SELECT
    `id`,
    TRY_CAST(CAST(CAST(`n` AS DECIMAL(19, 0)) * CAST(`n` AS DECIMAL(19, 0)) AS STRING) AS BIGINT) AS `product`
  FROM `orders`
)
WHERE `product` IS NOT NULL;

INSERT INTO `doubled`
SELECT
  `id`,
  `product`
FROM (
  SELECT
    `id`,
    TRY_CAST(CAST(CAST(`n` AS DECIMAL(19, 0)) * CAST(2 AS DECIMAL(19, 0)) AS STRING) AS BIGINT) AS `product`
  FROM `orders`
)
WHERE `product` IS NOT NULL;

INSERT INTO `negated`
SELECT
  `id`,
  `negative`,
  `floating`
FROM (
  SELECT
    `id`,
    TRY_CAST(CAST(CAST(0 AS DECIMAL(19, 0)) - CAST(`n` AS DECIMAL(19, 0)) AS STRING) AS BIGINT) AS `negative`,
    -`d` AS `floating`
  FROM `orders`
)
WHERE `negative` IS NOT NULL;

INSERT INTO `nulls`
SELECT
  `id`,
  `sum`
FROM (
  SELECT
    `id`,
    TRY_CAST(CAST(CAST(`m` AS DECIMAL(19, 0)) + CAST(1 AS DECIMAL(19, 0)) AS STRING) AS BIGINT) AS `sum`
  FROM `orders`
)
WHERE `sum` IS NOT NULL;

INSERT INTO `tried`
SELECT
  `id`,
  `sum`,
  `m`,
  `other`,
  `mail`,
  `kept`
FROM (
  SELECT
    `id`,
    COALESCE(TRY_CAST(CAST(CAST(`n` AS DECIMAL(19, 0)) + CAST(`n` AS DECIMAL(19, 0)) AS STRING) AS BIGINT), CAST(-1 AS BIGINT)) AS `sum`,
    COALESCE(`m`, CAST(0 AS BIGINT)) AS `m`,
    CASE WHEN `m` IS NULL THEN CAST(7 AS BIGINT) ELSE MOD(TRY_CAST(CAST(CAST(`m` AS DECIMAL(19, 0)) * CAST(10 AS DECIMAL(19, 0)) AS STRING) AS BIGINT), CAST(7 AS BIGINT)) END AS `other`,
    COALESCE(`user`.`mail`, 'none') AS `mail`,
    `user`.`mail` AS `kept`
  FROM `orders`
)
WHERE `other` IS NOT NULL;

INSERT INTO `numbers`
SELECT
  `id`,
  `half`,
  `rest`,
  `bound`,
  `double`,
  `infinite`,
  `text`,
  `seconds`
FROM (
  SELECT
    `id`,
    `n` / CAST(2 AS BIGINT) AS `half`,
    MOD(`n`, CAST(10 AS BIGINT)) AS `rest`,
    (`n` / CAST(3 AS BIGINT)) - ((`n` / CAST(3 AS BIGINT)) / CAST(2 AS BIGINT)) AS `bound`,
    ((CAST(`n` AS DOUBLE) * 0.5E0) + (`d` / 3.0E0)) - 1.0E0 AS `double`,
    `d` / 0.0E0 AS `infinite`,
    (CAST(`n` AS STRING) || ' ') || LOWER(CAST(`b` AS STRING)) AS `text`,
    EXTRACT(EPOCH FROM FLOOR(`at` TO SECOND)) AS `seconds`
  FROM `orders`
);

INSERT INTO `texts`
SELECT
  `id`,
  `size`,
  `lower`,
  `upper`,
  `starts`,
  `ends`,
  `contains`,
  `first`,
  `parts`,
  `replaced`,
  `channel`,
  `whole`,
  `matches`,
  `quoted`
FROM (
  SELECT
    `id`,
    CAST(CHAR_LENGTH(`s`) AS BIGINT) AS `size`,
    TRANSLATE(`s`, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'abcdefghijklmnopqrstuvwxyz') AS `lower`,
    TRANSLATE(`s`, 'abcdefghijklmnopqrstuvwxyz', 'ABCDEFGHIJKLMNOPQRSTUVWXYZ') AS `upper`,
    STARTSWITH(`s`, 'a') OR STARTSWITH(`s`, '') AS `starts`,
    ENDSWITH(`s`, '/c') AS `ends`,
    POSITION('😀' IN `s`) > 0 OR POSITION('' IN `s`) > 0 AS `contains`,
    CASE WHEN `s` = '' THEN '' ELSE SPLIT_INDEX(`s`, '/', 0) END AS `first`,
    CAST(CHAR_LENGTH(`s`) - CHAR_LENGTH(REPLACE(`s`, '/', '')) + 1 AS BIGINT) AS `parts`,
    REPLACE(`s`, 'a', 'bb') AS `replaced`,
    COALESCE(REGEXP_EXTRACT(`s`, 'channel_id=([^&]*)', 1), '-') AS `channel`,
    COALESCE(REGEXP_EXTRACT(`s`, '[A-Za-z]+', 0), '-') AS `whole`,
    REGEXP(`s`, '^[/a]') AS `matches`,
    (`user`.`name` || '''') || '\ `x`' AS `quoted`
  FROM `orders`
);

INSERT INTO `second`
SELECT
  `id`,
  `part`
FROM (
  SELECT
    `id`,
    SPLIT_INDEX(`s`, '/', 1) AS `part`
  FROM `orders`
)
WHERE `part` IS NOT NULL;

INSERT INTO `times`
SELECT
  `id`,
  `at`,
  `year`,
  `month`,
  `date`,
  `day`,
  `hour`,
  `minute`,
  `second`,
  `text`,
  `short`,
  `later`,
  `same`
FROM (
  SELECT
    `id`,
    `at`,
    CAST(DATE_FORMAT(`at`, 'yyyy') AS BIGINT) AS `year`,
    CAST(DATE_FORMAT(`at`, 'MM') AS BIGINT) - 1 AS `month`,
    CAST(DATE_FORMAT(`at`, 'dd') AS BIGINT) AS `date`,
    CAST(DATE_FORMAT(`at`, 'dd') AS BIGINT) - 1 AS `day`,
    CAST(DATE_FORMAT(`at`, 'HH') AS BIGINT) AS `hour`,
    CAST(DATE_FORMAT(`at`, 'mm') AS BIGINT) AS `minute`,
    CAST(DATE_FORMAT(`at`, 'ss') AS BIGINT) AS `second`,
    DATE_FORMAT(`at`, 'yyyy/MM/dd HH:mm:ss') AS `text`,
    DATE_FORMAT(`at`, 'yyyy-MM-dd''T''HH:mm:ss''Z''') AS `short`,
    `at` > CAST(TIMESTAMP '2026-01-31 12:00:00.122999999' AS TIMESTAMP_LTZ(9)) AS `later`,
    `at` = CAST(TIMESTAMP '2026-06-30 00:00:00' AS TIMESTAMP_LTZ(9)) AS `same`
  FROM `orders`
);

INSERT INTO `conditions`
SELECT
  `id`,
  `equal`,
  `unequal`,
  `mail`,
  `both`,
  `known`,
  `kind`,
  `small`,
  `name`
FROM (
  SELECT
    `id`,
    `m` IS NOT DISTINCT FROM 2 AS `equal`,
    `m` IS DISTINCT FROM 2 AS `unequal`,
    `user`.`mail` IS NOT DISTINCT FROM 'x' AS `mail`,
    `user`.`mail` IS NULL AND `m` IS NULL AS `both`,
    `m` IS NOT NULL AND (`m` IS NOT NULL AND `m` IN (1, 2)) AS `known`,
    CASE WHEN `d` > 1.0E0 THEN CASE WHEN `b` THEN 'yes' ELSE 'no' END ELSE 'small' END AS `kind`,
    `d` <= 0.1E0 AND `d` <> 0.0E0 AS `small`,
    `user`.`name` = 'ann' AS `name`
  FROM `orders`
  WHERE ((`id` IN (1, 2, 3, 5, 6) AND NOT (`user`.`name` IN ('Ann'))) OR TRY_CAST(CAST(CAST(`m` AS DECIMAL(19, 0)) + CAST(`n` AS DECIMAL(19, 0)) AS STRING) AS BIGINT) > 5)
);

INSERT INTO `failing`
SELECT
  `id`,
  CAST(ROW(`user`.`name`, `user`.`age`, `user`.`mail`) AS ROW<`name` STRING NOT NULL, `age` BIGINT NOT NULL, `mail` STRING>) AS `user`,
  `n`,
  `m`,
  `d`,
  `s`,
  `b`,
  `tags`,
  `at`
FROM `orders`
WHERE (`m` > 1 OR `id` = 3 OR `id` = 5);

INSERT INTO `negative`
SELECT
  `id`,
  CAST(ROW(`user`.`name`, `user`.`age`, `user`.`mail`) AS ROW<`name` STRING NOT NULL, `age` BIGINT NOT NULL, `mail` STRING>) AS `user`,
  `n`,
  `m`,
  `d`,
  `s`,
  `b`,
  `tags`,
  `at`
FROM `orders`
WHERE NOT (`m` > 1);

INSERT INTO `nested`
SELECT
  CAST(ROW(`b.name`, `b.age`, `b.mail`) AS ROW<`name` STRING NOT NULL, `age` BIGINT NOT NULL, `mail` STRING>) AS `b`,
  `c`
FROM (
  SELECT
    `user`.`name` AS `b.name`,
    CAST(1 AS BIGINT) AS `b.age`,
    `user`.`mail` AS `b.mail`,
    `id` AS `c`
  FROM `orders`
);
END;
