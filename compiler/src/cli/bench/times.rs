//! Statistics of the times of many runs.
use std::time::Duration;

/// Times of runs, at least one.
#[derive(Debug)]
pub(super) struct Times {
    sorted: Vec<Duration>,
}

impl Times {
    pub(super) fn new(mut times: Vec<Duration>) -> Times {
        times.sort_unstable();
        Times { sorted: times }
    }

    pub(super) fn count(&self) -> usize {
        self.sorted.len()
    }

    pub(super) fn best(&self) -> Duration {
        self.percentile(0.0)
    }

    pub(super) fn worst(&self) -> Duration {
        self.percentile(1.0)
    }

    /// The percentile: the smallest time that this share of runs did not exceed.
    pub(super) fn percentile(&self, part: f64) -> Duration {
        let rank = (part * self.sorted.len() as f64).ceil() as usize;
        self.sorted.get(rank.max(1) - 1).copied().unwrap_or_default()
    }

    pub(super) fn mean(&self) -> Duration {
        Duration::from_secs_f64(self.sum() / self.sorted.len().max(1) as f64)
    }

    /// The standard deviation of a run.
    pub(super) fn deviation(&self) -> Duration {
        let mean = self.mean().as_secs_f64();
        let squares: f64 = self.sorted.iter().map(|time| (time.as_secs_f64() - mean).powi(2)).sum();
        Duration::from_secs_f64((squares / (self.sorted.len().max(2) - 1) as f64).sqrt())
    }

    /// Runs per second.
    pub(super) fn throughput(&self) -> f64 {
        self.sorted.len() as f64 / self.sum()
    }

    /// In seconds.
    fn sum(&self) -> f64 {
        self.sorted.iter().sum::<Duration>().as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let times = Times::new((1..=100).rev().map(Duration::from_millis).collect());
        let ms = |part| times.percentile(part).as_millis();
        assert_eq!((ms(0.0), ms(0.5), ms(0.9), ms(0.99), ms(1.0)), (1, 50, 90, 99, 100));
        let one = Times::new(vec![Duration::from_millis(7)]);
        assert_eq!((one.best(), one.percentile(0.99)), (Duration::from_millis(7), Duration::from_millis(7)));
        assert_eq!((one.mean(), one.deviation()), (Duration::from_millis(7), Duration::ZERO));
    }

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        let times = Times::new([2, 4, 4, 4, 5, 5, 7, 9].map(Duration::from_secs).to_vec());
        assert_eq!((times.mean(), times.worst()), (Duration::from_secs(5), Duration::from_secs(9)));
        assert!((times.deviation().as_secs_f64() - (32.0f64 / 7.0).sqrt()).abs() < 1e-9);
    }
}
