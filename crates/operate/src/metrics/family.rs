//! Families of samples, and their two text forms.
//! Owns: [`Families`], OpenMetrics and Prometheus' older text of them. Not here: which families there are (`md`, `array`,
//! `members`, `process`).
//! Invariant: a family has no two samples with the same labels, and no sample without a name of [`ALL`](super::names::ALL).
//! Spec: OpenMetrics 1.0; Prometheus' text format 0.0.4.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt;

/// What a family counts or shows: its name without `_total`, and its help.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Name {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) help: &'static str,
}

/// What its values are: of the moment, or only growing, or counts by bucket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    Gauge,
    Counter,
    Histogram,
}

impl Name {
    /// The names under which its samples are stored by Prometheus.
    #[cfg(test)]
    pub(crate) fn stored(&self) -> Vec<String> {
        match self.kind {
            Kind::Gauge => vec![self.name.to_owned()],
            Kind::Counter => vec![format!("{}_total", self.name)],
            Kind::Histogram => ["bucket", "sum", "count"].map(|end| format!("{}_{end}", self.name)).to_vec(),
        }
    }
}

/// The labels of a sample, in their order.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// What a sample says.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Value {
    Whole(u64),
    Real(f64),
    Histogram(Histogram),
}

/// Counts by bucket.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Histogram {
    /// The bound of each bucket, and what is in it alone. The last bound is infinite.
    pub(crate) buckets: Vec<(f64, u64)>,
    /// Of all that is counted.
    pub(crate) sum: f64,
}

/// All samples of a scrape.
#[derive(Debug, Default)]
pub(crate) struct Families(BTreeMap<&'static str, (Name, BTreeMap<Labels, Value>)>);

impl Families {
    /// Adds a sample. If the family has one with these labels, that one stays: a second one would make the scrape fail.
    pub(crate) fn add(&mut self, name: Name, labels: Labels, value: Value) {
        let (_, samples) = self.0.entry(name.name).or_insert_with(|| (name, BTreeMap::new()));
        samples.entry(labels).or_insert(value);
    }

    pub(crate) fn whole(&mut self, name: Name, labels: Labels, value: u64) {
        self.add(name, labels, Value::Whole(value));
    }

    pub(crate) fn histogram(&mut self, name: Name, labels: Labels, value: Histogram) {
        self.add(name, labels, Value::Histogram(value));
    }

    pub(crate) fn real(&mut self, name: Name, labels: Labels, value: f64) {
        self.add(name, labels, Value::Real(value));
    }

    /// The text for a scrape that asks for OpenMetrics 1.0.
    pub(crate) fn open_metrics(self) -> String {
        let (mut out, registry) = (String::new(), self.registry());
        text::encode(&mut out, &registry).expect("a string takes all");
        out
    }

    /// The older text, which every reader knows: also node_exporter's textfile collector.
    pub(crate) fn plain(self) -> String {
        let (mut out, registry) = (String::new(), self.registry());
        prometheus_text::encode(&mut out, &registry).expect("a string takes all");
        out
    }

    fn registry(self) -> Registry {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        registry
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, samples) in self.0.values() {
            let kind = match name.kind {
                Kind::Gauge => MetricType::Gauge,
                Kind::Counter => MetricType::Counter,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut family = encoder.encode_descriptor(name.name, name.help, None, kind)?;
            for (labels, value) in samples {
                let labels = labels.as_slice();
                let mut sample = family.encode_family(&labels)?;
                match (name.kind, value) {
                    (Kind::Counter, Value::Whole(value)) => ConstCounter::new(*value).encode(sample)?,
                    (Kind::Counter, Value::Real(value)) => ConstCounter::new(*value).encode(sample)?,
                    (Kind::Gauge, Value::Whole(value)) => ConstGauge::new(*value).encode(sample)?,
                    (Kind::Gauge, Value::Real(value)) => ConstGauge::new(*value).encode(sample)?,
                    (Kind::Histogram, Value::Histogram(Histogram { buckets, sum })) => {
                        let count = buckets.iter().map(|(_, count)| count).sum();
                        sample.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)?;
                    }
                    (Kind::Histogram, Value::Whole(_) | Value::Real(_))
                    | (Kind::Gauge | Kind::Counter, Value::Histogram(_)) => {
                        unreachable!("{} has values of its kind", name.name)
                    }
                }
            }
        }
        Ok(())
    }
}
