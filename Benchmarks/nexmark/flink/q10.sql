SELECT *, DATE_FORMAT(`at`, 'yyyy-MM-dd') AS `day`, DATE_FORMAT(`at`, 'HH:mm') AS `minute` FROM bid
