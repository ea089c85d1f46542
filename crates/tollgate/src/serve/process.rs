//! Metrics of the process itself, under the names that every Prometheus client uses: processor time, memory,
//! file descriptors, start time. They are read from `/proc`; without it, they are not exported.

use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

#[derive(Debug)]
pub(crate) struct ProcessMeters;

/// The values in `/proc` for this process.
#[derive(Debug, PartialEq)]
struct Readings {
    cpu_seconds: f64,
    resident_bytes: u64,
    virtual_bytes: u64,
    /// Seconds since 1970.
    start_time: f64,
}

impl Collector for ProcessMeters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let proc = |name: &str| fs::read_to_string(format!("/proc/{name}")).unwrap_or_default();
        if let Some(readings) = readings(&proc("self/stat"), &proc("stat")) {
            let (name, help) = ("process_cpu", "Processor time, user and system");
            let counter = ConstCounter::new(readings.cpu_seconds);
            let kind = counter.metric_type();
            counter.encode(encoder.encode_descriptor(name, help, Some(&Unit::Seconds), kind)?)?;
            let (name, help) = ("process_start_time_seconds", "Start of the process in seconds since 1970");
            gauge(&mut encoder, name, help, readings.start_time)?;
            let memory = [
                ("process_resident_memory_bytes", "Resident memory", readings.resident_bytes),
                ("process_virtual_memory_bytes", "Virtual memory", readings.virtual_bytes),
            ];
            for (name, help, bytes) in memory {
                gauge(&mut encoder, name, help, bytes)?;
            }
        }
        // One of them is the directory that is being read.
        let open = fs::read_dir("/proc/self/fd").map(|open| open.count().saturating_sub(1));
        if let Ok(open) = open {
            gauge(&mut encoder, "process_open_fds", "File descriptors that are open", open as u64)?;
        }
        if let Some(most) = getrlimit(Resource::Nofile).current {
            gauge(&mut encoder, "process_max_fds", "File descriptors that may be open", most)?;
        }
        Ok(())
    }
}

fn gauge<N>(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: N) -> std::fmt::Result
where
    ConstGauge<N>: EncodeMetric,
{
    let gauge = ConstGauge::new(value);
    gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
}

/// Parses `/proc/self/stat` and `/proc/stat`.
fn readings(process: &str, system: &str) -> Option<Readings> {
    // The name of the program is in brackets, and may have any characters.
    let (_, fields) = process.rsplit_once(") ")?;
    // The first is field 3 in proc(5).
    let fields: Vec<&str> = fields.split(' ').collect();
    let number = |place: usize| fields.get(place - 3)?.trim().parse::<u64>().ok();
    let booted = system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse::<u64>().ok()?;
    let seconds = |ticks: u64| ticks as f64 / clock_ticks_per_second() as f64;
    Some(Readings {
        cpu_seconds: seconds(number(14)? + number(15)?),
        start_time: booted as f64 + seconds(number(22)?),
        virtual_bytes: number(23)?,
        resident_bytes: number(24)? * page_size() as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_are_found_behind_any_name() {
        let process = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 250 150 0 0 20 0 3 0 500 1000000 25 0 0";
        let found = readings(process, "cpu 1 2 3\nbtime 1700000000\nprocesses 9\n").unwrap();
        assert_eq!(found.cpu_seconds, 400.0 / clock_ticks_per_second() as f64);
        assert_eq!(found.start_time, 1_700_000_000.0 + 500.0 / clock_ticks_per_second() as f64);
        assert_eq!((found.virtual_bytes, found.resident_bytes), (1_000_000, 25 * page_size() as u64));
        assert_eq!(readings("", ""), None);
    }
}
