//! Every target with its committed corpus, and with a fixed number of inputs that are made from it.

use std::path::Path;

use tollgate_fuzz_targets::ALL;

/// How many inputs are made for each target.
const INPUTS: usize = 3_000;
/// The largest input that is made, in bytes.
const MOST_BYTES: usize = 4_096;

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let files =
        std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    paths.sort();
    let corpus: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).expect("a file")).collect();
    assert!(!corpus.is_empty(), "the corpus of {name} is empty");
    corpus
}

/// An input that differs from one of the corpus in a few places.
fn mutated(corpus: &[Vec<u8>], luck: &mut fastrand::Rng) -> Vec<u8> {
    let mut input = corpus[luck.usize(..corpus.len())].clone();
    for _ in 0..luck.usize(1..6) {
        let at = luck.usize(..=input.len());
        match luck.u8(..6) {
            0 => input.insert(at, luck.u8(..)),
            1 if at < input.len() => drop(input.remove(at)),
            2 if at < input.len() => input[at] ^= 1 << luck.u8(..8),
            3 if at < input.len() => input[at] = *luck.choice(b"\r\n\0 ;:,=%[]{}.\"0").expect("one of them"),
            4 => {
                let other = &corpus[luck.usize(..corpus.len())];
                let from = luck.usize(..=other.len());
                let rest = input.split_off(at);
                input.extend_from_slice(&other[from..]);
                if luck.bool() {
                    input.extend(rest);
                }
            }
            _ => input.truncate(at),
        }
    }
    input.truncate(MOST_BYTES);
    input
}

#[test]
fn every_target_holds_for_its_corpus_and_for_inputs_made_from_it() {
    for (name, target) in ALL {
        let corpus = corpus(name);
        for input in &corpus {
            target(input);
        }
        let mut luck = fastrand::Rng::with_seed(20_261_117);
        for number in 0..INPUTS {
            let input = mutated(&corpus, &mut luck);
            let result = std::panic::catch_unwind(|| target(&input));
            assert!(result.is_ok(), "{name}, input {number}: {:?}", String::from_utf8_lossy(&input));
        }
    }
}
