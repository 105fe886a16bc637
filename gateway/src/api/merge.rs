//! Which lists of the built-in kinds are merged by a strategic merge patch, and by what key.
//!
//! The shapes restate the merge keys that Kubernetes publishes with its API types. A list that no
//! shape names is replaced whole, as there. Objects are always merged field by field. How a patch
//! is applied is in `storage::patch`; this module is data alone.

/// How the fields of one object are merged; a field that is not named has the plain rules.
#[derive(Debug)]
pub struct Shape {
    /// Fields with a rule of their own.
    pub fields: &'static [(&'static str, Rule)],
}

/// The rule of one field.
#[derive(Debug)]
pub enum Rule {
    /// An object whose fields have rules.
    Object(&'static Shape),
    /// A list of objects, told apart by the value of a key.
    Keyed(&'static str, &'static Shape),
    /// A list of plain values, merged as a set.
    Set,
}

impl Shape {
    /// The rule of a field, if it has one.
    #[must_use]
    pub fn rule(&self, field: &str) -> Option<&'static Rule> {
        self.fields
            .iter()
            .find(|(f, _)| *f == field)
            .map(|(_, r)| r)
    }
}

const METADATA: (&str, Rule) = (
    "metadata",
    Rule::Object(&Shape {
        fields: &[
            ("finalizers", Rule::Set),
            ("ownerReferences", Rule::Keyed("uid", &NONE)),
        ],
    }),
);
const CONDITIONS: (&str, Rule) = (
    "status",
    Rule::Object(&Shape {
        fields: &[("conditions", Rule::Keyed("type", &NONE))],
    }),
);
const NONE: Shape = Shape { fields: &[] };
const CONTAINER: Shape = Shape {
    fields: &[
        ("env", Rule::Keyed("name", &NONE)),
        ("ports", Rule::Keyed("containerPort", &NONE)),
        ("volumeMounts", Rule::Keyed("mountPath", &NONE)),
        ("volumeDevices", Rule::Keyed("devicePath", &NONE)),
    ],
};
const POD_SPEC: Shape = Shape {
    fields: &[
        ("containers", Rule::Keyed("name", &CONTAINER)),
        ("initContainers", Rule::Keyed("name", &CONTAINER)),
        ("ephemeralContainers", Rule::Keyed("name", &CONTAINER)),
        ("volumes", Rule::Keyed("name", &NONE)),
        ("imagePullSecrets", Rule::Keyed("name", &NONE)),
        ("hostAliases", Rule::Keyed("ip", &NONE)),
        ("resourceClaims", Rule::Keyed("name", &NONE)),
        ("schedulingGates", Rule::Keyed("name", &NONE)),
        (
            "topologySpreadConstraints",
            Rule::Keyed("topologyKey", &NONE),
        ),
    ],
};
const POD_TEMPLATE: Shape = Shape {
    fields: &[METADATA, ("spec", Rule::Object(&POD_SPEC))],
};
const TEMPLATED_SPEC: Shape = Shape {
    fields: &[("template", Rule::Object(&POD_TEMPLATE))],
};

/// Kinds without merged lists of their own.
pub const PLAIN: Shape = Shape {
    fields: &[METADATA, CONDITIONS],
};
/// Pods.
pub const POD: Shape = Shape {
    fields: &[
        METADATA,
        ("spec", Rule::Object(&POD_SPEC)),
        (
            "status",
            Rule::Object(&Shape {
                fields: &[
                    ("conditions", Rule::Keyed("type", &NONE)),
                    ("podIPs", Rule::Keyed("ip", &NONE)),
                    ("hostIPs", Rule::Keyed("ip", &NONE)),
                    ("resourceClaimStatuses", Rule::Keyed("name", &NONE)),
                ],
            }),
        ),
    ],
};
/// Kinds with a pod template in `spec.template`.
pub const TEMPLATED: Shape = Shape {
    fields: &[
        METADATA,
        ("spec", Rule::Object(&TEMPLATED_SPEC)),
        CONDITIONS,
    ],
};
/// Pod templates, which have it at the top.
pub const BARE_TEMPLATE: Shape = Shape {
    fields: &[METADATA, ("template", Rule::Object(&POD_TEMPLATE))],
};
/// Cron jobs, which have it in a job template.
pub const CRON_JOB: Shape = Shape {
    fields: &[
        METADATA,
        (
            "spec",
            Rule::Object(&Shape {
                fields: &[(
                    "jobTemplate",
                    Rule::Object(&Shape {
                        fields: &[METADATA, ("spec", Rule::Object(&TEMPLATED_SPEC))],
                    }),
                )],
            }),
        ),
    ],
};
/// Services.
pub const SERVICE: Shape = Shape {
    fields: &[
        METADATA,
        (
            "spec",
            Rule::Object(&Shape {
                fields: &[("ports", Rule::Keyed("port", &NONE))],
            }),
        ),
        CONDITIONS,
    ],
};
/// Service accounts.
pub const SERVICE_ACCOUNT: Shape = Shape {
    fields: &[
        METADATA,
        ("secrets", Rule::Keyed("name", &NONE)),
        ("imagePullSecrets", Rule::Keyed("name", &NONE)),
    ],
};
/// Nodes.
pub const NODE: Shape = Shape {
    fields: &[
        METADATA,
        (
            "spec",
            Rule::Object(&Shape {
                fields: &[("podCIDRs", Rule::Set)],
            }),
        ),
        (
            "status",
            Rule::Object(&Shape {
                fields: &[
                    ("conditions", Rule::Keyed("type", &NONE)),
                    ("addresses", Rule::Keyed("type", &NONE)),
                ],
            }),
        ),
    ],
};
