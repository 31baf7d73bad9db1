SELECT auction, bidder, channel_id
FROM (
  SELECT
    auction, bidder,
    CASE LOWER(channel)
      WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
      ELSE REGEXP_EXTRACT(url, 'channel_id=([^&]*)', 1) END AS channel_id
  FROM bid)
WHERE channel_id <> ''
