//! The contract on the stores of other programs. `./test --quick` leaves it out.

mod on_postgres;
mod on_redis;

use on_postgres::OnPostgres;
use on_redis::OnRedis;

contract!(redis, super::super::OnRedis::redis());
contract!(valkey, super::super::OnRedis::valkey());
contract!(sentinel, super::super::OnRedis::sentinel());
contract!(cluster, super::super::OnRedis::cluster());
contract!(postgres, super::super::OnPostgres::directly());
contract!(pgbouncer, super::super::OnPostgres::behind_pgbouncer());
