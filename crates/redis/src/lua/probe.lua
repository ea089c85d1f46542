-- Shows that scripts run, and that they may ask for the time.
redis.call('TIME')
return 'tollgate'
