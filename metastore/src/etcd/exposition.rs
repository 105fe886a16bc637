//! Prometheus' text form, as much of it as the page needs.

use std::fmt::{Display, Write};

use crate::stats::Timings;

/// What a family's values mean.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Counter,
    Gauge,
}

/// A page being written.
#[derive(Default)]
pub(crate) struct Page(String);

impl Page {
    /// A family of one value without labels.
    pub(crate) fn one(&mut self, name: &str, kind: Kind, value: impl Display) {
        self.labelled(name, kind, &[], value);
    }

    /// A family of one value.
    pub(crate) fn labelled(
        &mut self,
        name: &str,
        kind: Kind,
        labels: &[(&str, &str)],
        value: impl Display,
    ) {
        self.family(name, kind);
        self.sample(name, labels, value);
    }

    /// The head of a family; its values follow.
    pub(crate) fn family(&mut self, name: &str, kind: Kind) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    /// One value of the family whose head was written last.
    pub(crate) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        if labels.is_empty() {
            return self.line(format_args!("{name} {value}"));
        }
        let quoted = |(label, value): &(&str, &str)| format!("{label}=\"{}\"", escaped(value));
        let labels: Vec<String> = labels.iter().map(quoted).collect();
        self.line(format_args!("{name}{{{}}} {value}", labels.join(",")));
    }

    /// A family of times in seconds.
    pub(crate) fn histogram(&mut self, name: &str, timings: &Timings) {
        self.line(format_args!("# TYPE {name} histogram"));
        let bucket = format!("{name}_bucket");
        let mut sum = 0;
        for (bound, count) in timings.buckets() {
            sum += count;
            let bound = bound.map_or("+Inf".to_owned(), |bound| bound.as_secs_f64().to_string());
            self.sample(&bucket, &[("le", &bound)], sum);
        }
        self.line(format_args!("{name}_sum {}", timings.total().as_secs_f64()));
        self.line(format_args!("{name}_count {sum}"));
    }

    pub(crate) fn finish(self) -> String {
        self.0
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("a string takes any text");
    }
}

fn escaped(value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    value.replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_page_reads_as_prometheus_reads() {
        let mut page = Page::default();
        page.one("a_total", Kind::Counter, 3);
        page.labelled("b", Kind::Gauge, &[("x", "1\"\\\n"), ("y", "")], 0.5);
        let mut timings = Timings::default();
        timings.add(Duration::from_micros(900));
        timings.add(Duration::from_millis(3));
        timings.add(Duration::from_secs(60));
        page.histogram("t_seconds", &timings);
        let page = page.finish();
        let expected = "# TYPE a_total counter\na_total 3\n# TYPE b gauge\n\
            b{x=\"1\\\"\\\\\\n\",y=\"\"} 0.5\n# TYPE t_seconds histogram\n\
            t_seconds_bucket{le=\"0.001\"} 1\nt_seconds_bucket{le=\"0.002\"} 1\n\
            t_seconds_bucket{le=\"0.004\"} 2\n";
        assert!(page.starts_with(expected), "{page}");
        let end = "t_seconds_bucket{le=\"8.192\"} 2\nt_seconds_bucket{le=\"+Inf\"} 3\n\
            t_seconds_sum 60.0039\nt_seconds_count 3\n";
        assert!(page.ends_with(end), "{page}");
    }
}
