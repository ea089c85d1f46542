//! The two text formats of Prometheus: which one a scraper wants, and the conversion to the older one.

use std::fmt::Write;

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;

/// A format of the metrics page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// The Prometheus text format, version 0.0.4. Every tool reads it.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// The format that the `Accept` header prefers: text, unless it names OpenMetrics with at least the
    /// weight of text.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let (mut text, mut open) = (0, 0);
        for range in accepted.flat_map(|value| value.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let weight = parts.find_map(|part| part.strip_prefix("q=")).map_or(1000, thousandths);
            match media.to_ascii_lowercase().as_str() {
                "application/openmetrics-text" => open = open.max(weight),
                "text/plain" | "text/*" => text = text.max(weight),
                _ => {}
            }
        }
        if open > 0 && open >= text { Self::OpenMetrics } else { Self::Text }
    }

    /// Its media type.
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// A weight such as `0.6` in thousandths; 0 if it is invalid.
fn thousandths(weight: &str) -> u32 {
    let weight = weight.parse::<f32>().ok().filter(|weight| (0.0..=1.0).contains(weight));
    // Between 0 and 1000, as just checked.
    weight.map_or(0, |weight| (weight * 1000.0).round() as u32)
}

/// The page in the older format. There a family has the name of its samples, and no unit.
pub(crate) fn to_text(open_metrics: &str) -> String {
    let mut page = String::with_capacity(open_metrics.len());
    let mut help = "";
    for line in open_metrics.lines() {
        if let Some(said) = line.strip_prefix("# HELP ") {
            help = said.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|said| said.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            writeln!(page, "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}")
                .expect("writing to a string cannot fail");
        } else if !line.starts_with('#') {
            page.push_str(line);
            page.push('\n');
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn format(accept: &'static str) -> Format {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        Format::of(&headers)
    }

    #[test]
    fn the_format_is_the_one_that_the_scraper_prefers() {
        assert_eq!(Format::of(&HeaderMap::new()), Format::Text);
        let prometheus_2 = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;\
            version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
            text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for open in
            ["application/openmetrics-text", "Application/OpenMetrics-Text; version=1.0.0", prometheus_2]
                .into_iter()
                .chain([prometheus_3, "text/plain, application/openmetrics-text"])
        {
            assert_eq!(format(open), Format::OpenMetrics, "{open}");
        }
        let text_first = "text/plain;version=0.0.4;q=0.9,application/openmetrics-text;q=0.5";
        for text in
            ["*/*", "text/plain", "application/json", "", text_first, "application/openmetrics-text;q=0"]
        {
            assert_eq!(format(text), Format::Text, "{text}");
        }
    }

    #[test]
    fn the_older_format_names_families_as_their_samples() {
        let page = to_text(
            "# HELP a Counts.\n# TYPE a counter\na_total{x=\"1\"} 2\n# HELP b_seconds Times.\n\
             # TYPE b_seconds histogram\n# UNIT b_seconds seconds\nb_seconds_sum 1.0\n\
             # HELP c Which.\n# TYPE c info\nc_info{v=\"1\"} 1\n# EOF\n",
        );
        let expected = "# HELP a_total Counts.\n# TYPE a_total counter\na_total{x=\"1\"} 2\n\
             # HELP b_seconds Times.\n# TYPE b_seconds histogram\nb_seconds_sum 1.0\n\
             # HELP c_info Which.\n# TYPE c_info gauge\nc_info{v=\"1\"} 1\n";
        assert_eq!(page, expected);
    }
}
