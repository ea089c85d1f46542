//! Which keys are asked about, in which order.

/// How many distinct keys there are.
pub const KEYS: usize = 1_000_000;
/// How many times they are asked about in one round.
pub const DRAWS: usize = 1_000_000;

/// The n-th key.
pub fn key(n: usize) -> String {
    format!("user-{n:08}")
}

/// Keys drawn with equal chances. Their texts lie in the order of the draws, as a request's do that
/// was just read.
pub fn uniform() -> Vec<String> {
    let mut random = Random(88_172_645_463_325_252);
    (0..DRAWS).map(|_| key(random.below(KEYS))).collect()
}

/// Keys drawn as words are in a language: the n-th most frequent with a chance of one over n.
pub fn zipf() -> Vec<String> {
    let mut random = Random(88_172_645_463_325_252);
    let scale = (KEYS as f64).ln();
    let draw = |random: &mut Random| (random.unit() * scale).exp() as usize - 1;
    (0..DRAWS).map(|_| key(draw(&mut random).wrapping_mul(7_919) % KEYS)).collect()
}

/// One key, over and over.
pub fn hot() -> Vec<String> {
    vec![key(7); DRAWS]
}

/// Numbers that look as if they were drawn.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
