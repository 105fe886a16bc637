//! Which endpoints a request may be given: all of a cluster or a subset, those of the gateway's own
//! zone first. Compiled once a configuration; positions are those of the cluster's endpoints.

use super::pick::Tier;
use super::spec::{ClusterSpec, EndpointSpec, SubsetMembers, SubsetSpec};

/// Endpoints that requests are spread over.
#[derive(Debug)]
pub(super) struct Group {
    /// Empty for the whole cluster.
    pub(super) name: Box<str>,
    members: Box<[usize]>,
    /// Those of them in the gateway's zone; empty when that tells none apart.
    near: Box<[usize]>,
    is_strict: bool,
}

/// All groups of a cluster.
#[derive(Debug)]
pub(super) struct Groups {
    all: Group,
    subsets: Box<[Group]>,
}

impl Groups {
    pub(super) fn compile(spec: &ClusterSpec) -> Self {
        let zone = spec.zone.as_deref();
        let group = |name: &str, is_strict, has: &dyn Fn(&EndpointSpec) -> bool| {
            let among = |test: &dyn Fn(&EndpointSpec) -> bool| -> Box<[usize]> {
                let places = spec.endpoints.iter().enumerate();
                let found = places.filter(|(_, it)| has(it) && test(it));
                found.map(|(place, _)| place).collect()
            };
            let members = among(&|_| true);
            let near = among(&|it| zone.is_some() && it.zone.as_deref() == zone);
            Group {
                name: name.into(),
                near: if near.len() < members.len() {
                    near
                } else {
                    Box::default()
                },
                members,
                is_strict,
            }
        };
        let subset = |it: &SubsetSpec| group(&it.name, it.is_strict, &|at| it.members.has(at));
        Groups {
            all: group("", true, &|_| true),
            subsets: spec.subsets.iter().map(subset).collect(),
        }
    }

    /// The endpoints to choose from, given how good each is now.
    pub(super) fn candidates(
        &self,
        subset: Option<&str>,
        tier: impl Fn(usize) -> Tier,
    ) -> &[usize] {
        let named = |name: &str| self.subsets.iter().find(|it| *it.name == *name);
        let group = subset.and_then(named).unwrap_or(&self.all);
        let is_fine = |at: &&usize| tier(**at) <= Tier::Fresh;
        let near = group.near.iter().filter(is_fine).count();
        // Fewer than half of them could not carry what all of them did.
        if near > 0 && near * 2 >= group.near.len() {
            return &group.near;
        }
        let is_usable = |at: &usize| tier(*at) <= Tier::Reserve;
        let spills = !group.is_strict
            && !group.members.iter().any(is_usable)
            && self.all.members.iter().any(is_usable);
        // A subset that a reload has left without endpoints has nobody to be strict with.
        if spills || group.members.is_empty() {
            &self.all.members
        } else {
            &group.members
        }
    }
}

impl SubsetMembers {
    fn has(&self, endpoint: &EndpointSpec) -> bool {
        match self {
            SubsetMembers::Listed(urls) => urls
                .iter()
                .any(|url| url.trim_end_matches('/') == endpoint.url.trim_end_matches('/')),
            SubsetMembers::Labelled(labels) => {
                labels.iter().all(|label| endpoint.labels.contains(label))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Endpoints `0` to `3`: the first two in zone `a`, the even ones labelled `big`.
    fn groups(zone: Option<&str>, is_strict: bool) -> Groups {
        let urls = (0..4).map(|n| format!("https://10.0.0.{n}:6443"));
        let mut spec = ClusterSpec::new("test", urls);
        for (n, endpoint) in spec.endpoints.iter_mut().enumerate() {
            endpoint.zone = Some(if n < 2 { "a" } else { "b" }.to_owned());
            if n % 2 == 0 {
                endpoint.labels = vec!["big".to_owned(), "ssd".to_owned()];
            }
        }
        spec.zone = zone.map(str::to_owned);
        let subset = |name: &str, members| SubsetSpec {
            name: name.to_owned(),
            members,
            is_strict,
        };
        spec.subsets = vec![
            subset("big", SubsetMembers::Labelled(vec!["big".to_owned()])),
            subset(
                "last",
                SubsetMembers::Listed(vec!["https://10.0.0.3:6443/".to_owned()]),
            ),
        ];
        Groups::compile(&spec)
    }

    fn with_out<'a>(out: &'a [usize]) -> impl Fn(usize) -> Tier + 'a {
        |at| {
            if out.contains(&at) {
                Tier::Desperate
            } else {
                Tier::Good
            }
        }
    }

    #[test]
    fn subsets_keep_to_themselves_until_all_of_them_are_out() {
        let loose = groups(None, false);
        assert_eq!(loose.candidates(None, with_out(&[])), [0, 1, 2, 3]);
        assert_eq!(loose.candidates(Some("big"), with_out(&[])), [0, 2]);
        assert_eq!(loose.candidates(Some("big"), with_out(&[0])), [0, 2]);
        assert_eq!(
            loose.candidates(Some("big"), with_out(&[0, 2])),
            [0, 1, 2, 3]
        );
        let nobody = with_out(&[0, 1, 2, 3]);
        assert_eq!(loose.candidates(Some("big"), nobody), [0, 2]);
        assert_eq!(loose.candidates(Some("last"), with_out(&[])), [3]);
        assert_eq!(loose.candidates(Some("gone"), with_out(&[])), [0, 1, 2, 3]);
        let strict = groups(None, true);
        assert_eq!(strict.candidates(Some("big"), with_out(&[0, 2])), [0, 2]);
    }

    #[test]
    fn own_zone_is_left_when_less_than_half_of_it_is_left() {
        let groups = groups(Some("a"), false);
        assert_eq!(groups.candidates(None, with_out(&[])), [0, 1]);
        assert_eq!(groups.candidates(None, with_out(&[0])), [0, 1]);
        assert_eq!(groups.candidates(None, with_out(&[0, 1])), [0, 1, 2, 3]);
        assert_eq!(groups.candidates(Some("big"), with_out(&[])), [0]);
        assert_eq!(groups.candidates(Some("big"), with_out(&[0])), [0, 2]);
        assert_eq!(groups.candidates(Some("last"), with_out(&[])), [3]);
    }
}
