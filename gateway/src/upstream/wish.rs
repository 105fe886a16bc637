//! What a request asks of the choice of its endpoint, in terms that know no users and no paths.

use std::hash::BuildHasher as _;

use super::endpoint::LoadClass;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish<'a> {
    /// What kind of work it is.
    pub(crate) class: LoadClass,
    /// The subset it has to go to, by name; all endpoints otherwise.
    pub(crate) subset: Option<&'a str>,
    /// Whose reads must not go back in time: those of one number go to one endpoint while it is
    /// in good standing.
    pub(crate) client: Option<u64>,
    /// Who asks, where an endpoint's 429 is to be heeded.
    pub(crate) caller: Option<&'a str>,
    /// Its work, in ordinary requests.
    pub(crate) cost: u64,
    /// It goes on with a watch: an endpoint that has just come back would answer that it is too
    /// late.
    pub(crate) is_resumed: bool,
}

impl Wish<'_> {
    /// Any endpoint.
    pub(crate) fn any(class: LoadClass) -> Self {
        Wish {
            class,
            subset: None,
            client: None,
            caller: None,
            cost: 1,
            is_resumed: false,
        }
    }
}

/// A caller's number.
pub(super) fn number(caller: &str) -> u64 {
    foldhash::quality::FixedState::default().hash_one(caller)
}
