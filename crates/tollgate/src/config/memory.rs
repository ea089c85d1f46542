//! The most memory that the counters can take, compared with the machine's.

mod demand;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tollgate_core::{OnOutage, Rule};

use super::{Config, StoreConfig, Warning};

/// How many keys are remembered while a shared store cannot be used.
pub(crate) const FALLBACK_KEYS: usize = 1_000_000;

/// The most memory that counters in this process can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryNeed {
    /// The most keys, without those whose number is bounded otherwise.
    pub keys: u64,
    /// The memory of each of them.
    pub key_bytes: u64,
    /// The memory of all keys, with their limits used up.
    pub bytes: u64,
}

impl Config {
    /// The most memory that the counters of the configured rules take in this process. With a shared store these
    /// are the counters of an outage, under the limits that hold then.
    pub fn memory_need(&self) -> MemoryNeed {
        let local;
        let (policies, max_keys) = match &self.store {
            StoreConfig::Memory { max_keys } | StoreConfig::File { max_keys, .. } => {
                (&self.policies, *max_keys)
            }
            StoreConfig::Redis(_) | StoreConfig::Postgres(_) => {
                local = self.policies.in_outage();
                (&local, FALLBACK_KEYS)
            }
        };
        // A rule that denies in an outage counts nothing then.
        let counts =
            |rule: &&Arc<Rule>| rule.enabled && !(self.store.is_shared() && rule.on_outage == OnOutage::Deny);
        let rules = policies.rules().iter().filter(counts);
        let max_keys = max_keys as u64;
        demand::need(rules.map(|rule| self.demand(policies, rule, max_keys)), max_keys)
    }

    /// A warning if the counters can take more memory than the machine has.
    pub(super) fn too_large(&self) -> Option<Warning> {
        let (need, machine) = (self.memory_need(), machine_memory(Path::new("/"))?);
        (need.bytes > machine).then(|| Warning {
            policy: None,
            message: format!(
                "the counters can take {} {}if all {} keys are used up, and this machine gives the program {}",
                in_words(need.bytes),
                if self.store.is_shared() { "in an outage " } else { "" },
                need.keys,
                in_words(machine)
            ),
            remedy: self.less_memory(),
        })
    }
}

impl Config {
    fn less_memory(&self) -> String {
        let first = if self.store.is_shared() {
            "let the rules that take the most say `on_outage: allow` or `deny`"
        } else {
            "lower `max_keys` in `store`"
        };
        format!(
            "{first}, or use kinds of limits that take less for each key: `sliding by` instead of `sliding`, a window, or a bucket"
        )
    }
}

/// A number of bytes for people: rounded up to whole KiB, MiB or GiB.
pub fn in_words(bytes: u64) -> String {
    let (shift, unit) = match bytes {
        0..0x40_0000 => (10, "KiB"),
        0x40_0000..0x1_0000_0000 => (20, "MiB"),
        _ => (30, "GiB"),
    };
    format!("{} {unit}", bytes.div_ceil(1 << shift))
}

/// The memory that this process may use: the machine's, or the limit of its control group. `None` if the
/// system does not report it.
pub fn machine_memory(root: &Path) -> Option<u64> {
    let total = fs::read_to_string(root.join("proc/meminfo")).ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    });
    [total, group_limit(root)].into_iter().flatten().min()
}

/// The lowest memory limit of this process's control groups.
fn group_limit(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let limits = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let (base, file) = match controllers {
            "" => (root.join("sys/fs/cgroup"), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (root.join("sys/fs/cgroup/memory"), "memory.limit_in_bytes")
            }
            _ => return Vec::new(),
        };
        // Each group is bound by those above it. In a container the path may be that of the host.
        let above = Path::new(group.trim_start_matches('/')).ancestors();
        let read = |group: &Path| fs::read_to_string(base.join(group).join(file)).ok();
        above.filter_map(read).filter_map(|text| text.trim().parse().ok()).collect::<Vec<u64>>()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> Option<u64> {
        let root = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a directory above")).expect("it can be made");
            fs::write(path, text).expect("it can be written");
        }
        machine_memory(root.path())
    }

    #[test]
    fn the_lowest_of_all_bounds_counts() {
        let meminfo = ("proc/meminfo", "MemTotal:       2048 kB\nMemFree:  1 kB\n");
        assert_eq!(machine(&[]), None);
        assert_eq!(machine(&[meminfo]), Some(2 << 20));
        let in_slice = ("proc/self/cgroup", "0::/a.slice/b.service\n");
        let open = ("sys/fs/cgroup/a.slice/b.service/memory.max", "max\n");
        assert_eq!(machine(&[meminfo, in_slice, open]), Some(2 << 20));
        let bound = ("sys/fs/cgroup/a.slice/memory.max", "1048576\n");
        assert_eq!(machine(&[meminfo, in_slice, open, bound]), Some(1 << 20), "the group above binds");
        let contained = ("sys/fs/cgroup/memory.max", "4096\n");
        assert_eq!(machine(&[meminfo, ("proc/self/cgroup", "0::/\n"), contained]), Some(4096));
        let first = ("proc/self/cgroup", "3:cpu,cpuacct:/x\n2:memory:/x\n");
        let limit = ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "8192\n");
        assert_eq!(machine(&[meminfo, first, limit]), Some(8192));
        let none = ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(machine(&[meminfo, first, none]), Some(2 << 20));
    }

    #[test]
    fn bytes_are_rounded_up() {
        let words = [1, 4 << 20, (4 << 20) + 1, 4 << 30, u64::MAX].map(in_words);
        assert_eq!(words, ["1 KiB", "4 MiB", "5 MiB", "4 GiB", "17179869184 GiB"]);
    }
}
