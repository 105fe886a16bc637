//! Definitions over a store in memory: stored, served, refused, ended.

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_metastore::engine::memory::Memory;
use sluice_metastore::store::{Store, StoreOptions};

use super::{CLEANUP_FINALIZER, Definitions, GROUP, PLURAL};
use crate::api::resource::Registry;
use crate::api::storage::{
    DeleteOptions, Deleted, Object, Part, Sources, Storage, Stored, Target, WriteOptions,
};
use crate::status::Refusal;

struct Fixture {
    storage: Storage,
    registry: Arc<Registry>,
    definitions: Definitions,
}

impl Fixture {
    fn start() -> Fixture {
        Fixture::over(Store::open(Memory::new(), StoreOptions::default()).expect("a store"))
    }

    fn over(store: Store) -> Fixture {
        let storage = Storage::new(store, Sources::default());
        let registry = Arc::new(Registry::new());
        let definitions = Definitions::open(&storage, Arc::clone(&registry)).expect("open");
        Fixture {
            storage,
            registry,
            definitions,
        }
    }

    async fn create(
        &self,
        path: [&str; 3],
        namespace: &str,
        object: &Value,
    ) -> Result<Value, Refusal> {
        let [group, version, plural] = path;
        let kind = self
            .registry
            .resolve(group, version, plural)
            .expect("served");
        let target = Target {
            kind: &kind,
            namespace,
            name: "",
        };
        let object: Object = object.as_object().expect("an object").clone();
        let stored = self
            .storage
            .create(target, object, WriteOptions::internal())
            .await?;
        self.definitions
            .reached(self.storage.store().revision())
            .await;
        Ok(serde_json::from_slice(&stored.value).expect("json"))
    }

    async fn define(&self, object: &Value) -> Result<Value, Refusal> {
        self.create([GROUP, "v1", PLURAL], "", object).await
    }

    /// Waits until the store has changed in such a way that `is_so` holds.
    async fn until(&self, is_so: impl Fn() -> bool) {
        let mut newest = self.storage.store().subscribe();
        while !is_so() {
            newest.changed().await.expect("the store is open");
            self.definitions
                .reached(self.storage.store().revision())
                .await;
        }
    }
}

fn widgets() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Cluster",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [
                {"name": "v1", "served": true, "storage": true,
                 "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
                 "selectableFields": [{"jsonPath": ".spec.colour"}],
                 "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}}},
                {"name": "v1beta1", "served": true, "storage": false,
                 "schema": {"openAPIV3Schema": {"type": "object"}}},
                {"name": "v1alpha1", "served": false, "storage": false,
                 "schema": {"openAPIV3Schema": {"type": "object"}}},
            ],
        },
    })
}

#[tokio::test]
async fn a_stored_definition_is_established_and_served() {
    let fixture = Fixture::start();
    let stored = fixture.define(&widgets()).await.expect("stored");
    assert_eq!(stored["spec"]["names"]["singular"], "widget");
    assert_eq!(stored["spec"]["names"]["listKind"], "WidgetList");
    assert_eq!(stored["spec"]["conversion"]["strategy"], "None");
    assert_eq!(stored["metadata"]["finalizers"], json!([CLEANUP_FINALIZER]));
    assert_eq!(stored["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(stored["status"]["acceptedNames"]["kind"], "Widget");
    let conditions = stored["status"]["conditions"].as_array().expect("a list");
    assert!(
        conditions.iter().all(|c| c["status"] == "True"),
        "{conditions:?}"
    );

    let kind = fixture
        .registry
        .resolve("example.com", "v1", "widgets")
        .expect("served");
    assert!(kind.has_status && kind.is_custom);
    assert_eq!(
        kind.scale.as_ref().map(|s| s.spec_replicas.as_str()),
        Some("spec.size")
    );
    assert_eq!(
        kind.field_labels.first().map(|f| f.label.as_str()),
        Some("spec.colour")
    );
    assert!(
        fixture
            .registry
            .resolve("example.com", "v1beta1", "widgets")
            .is_some()
    );
    assert!(
        fixture
            .registry
            .resolve("example.com", "v1alpha1", "widgets")
            .is_none()
    );

    // The schema holds for instances.
    let bad = json!({"metadata": {"name": "a"}, "spec": {"size": "x"}});
    let refused = fixture
        .create(["example.com", "v1", "widgets"], "", &bad)
        .await;
    assert_eq!(refused.expect_err("wrong type").code, 422);
    // Another server of the same store, as after a restart.
    let again = Fixture::over(fixture.storage.store().clone());
    assert!(
        again
            .registry
            .resolve("example.com", "v1", "widgets")
            .is_some()
    );
}

#[tokio::test]
async fn what_is_wrong_with_a_definition_is_named() {
    let fixture = Fixture::start();
    let cases: [(&str, Value, &str); 9] = [
        (
            "/metadata/name",
            json!("gadgets.example.com"),
            "metadata.name",
        ),
        ("/spec/scope", json!("Everywhere"), "spec.scope"),
        ("/spec/group", json!("example"), "spec.group"),
        ("/spec/names/plural", json!("Widgets"), "spec.names.plural"),
        ("/spec/names/kind", json!(""), "spec.names.kind"),
        ("/spec/versions/1/storage", json!(true), "spec.versions"),
        (
            "/spec/versions/1/name",
            json!("v1"),
            "spec.versions[1].name",
        ),
        (
            "/spec/versions/0/schema",
            json!({}),
            "spec.versions[0].schema.openAPIV3Schema",
        ),
        (
            "/spec/versions/0/subresources/scale/specReplicasPath",
            json!("size"),
            "spec.versions[0].subresources.scale.specReplicasPath",
        ),
    ];
    for (pointer, value, field) in cases {
        let mut definition = widgets();
        *definition.pointer_mut(pointer).expect(pointer) = value;
        let refused = fixture.define(&definition).await.expect_err(pointer);
        assert_eq!(refused.code, 422, "{pointer}");
        let details = refused.details.expect("details");
        let causes = details["causes"].as_array().expect("a list");
        assert!(
            causes.iter().any(|c| c["field"] == field),
            "{pointer}: {causes:?}"
        );
    }
    let mut protected = widgets();
    protected["spec"]["group"] = json!("new.k8s.io");
    protected["metadata"]["name"] = json!("widgets.new.k8s.io");
    assert!(fixture.define(&protected).await.is_err());
    protected["metadata"]["annotations"] =
        json!({"api-approved.kubernetes.io": "unapproved, trying"});
    assert!(fixture.define(&protected).await.is_ok());
}

#[tokio::test]
async fn a_definition_with_taken_names_is_stored_and_not_served() {
    let fixture = Fixture::start();
    fixture.define(&widgets()).await.expect("stored");
    let mut other = widgets();
    other["metadata"]["name"] = json!("gadgets.example.com");
    other["spec"]["names"] = json!({"plural": "gadgets", "kind": "Gadget", "shortNames": ["wd"]});
    let stored = fixture.define(&other).await.expect("stored");
    assert_eq!(stored["status"]["conditions"][0]["reason"], "NamesConflict");
    assert!(
        fixture
            .registry
            .resolve("example.com", "v1", "gadgets")
            .is_none()
    );
}

#[tokio::test]
async fn instances_go_before_their_definition() {
    let fixture = Fixture::start();
    fixture.define(&widgets()).await.expect("stored");
    let path = ["example.com", "v1", "widgets"];
    fixture
        .create(path, "", &json!({"metadata": {"name": "free"}}))
        .await
        .expect("stored");
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/x"]}});
    fixture.create(path, "", &held).await.expect("stored");

    let definition = fixture
        .registry
        .resolve(GROUP, "v1", PLURAL)
        .expect("served");
    let target = Target {
        kind: &definition,
        namespace: "",
        name: "widgets.example.com",
    };
    let deleted = fixture
        .storage
        .delete(target, &DeleteOptions::default())
        .await;
    assert!(matches!(deleted, Ok(Deleted::Marked(_))));
    let widget = fixture
        .registry
        .resolve("example.com", "v1", "widgets")
        .expect("still served");
    let instance = |name| Target {
        kind: &widget,
        namespace: "",
        name,
    };
    let get = |name| fixture.storage.get(instance(name));
    fixture.until(|| get("free").is_err()).await;
    fixture
        .until(|| {
            get("held").is_ok_and(|stored: Stored| {
                let object: Value = serde_json::from_slice(&stored.value).expect("json");
                object["metadata"].get("deletionTimestamp").is_some()
            })
        })
        .await;
    assert!(
        fixture.storage.get(target).is_ok(),
        "gone before its last instance"
    );

    let release = |old: &Object| {
        let mut new = old.clone();
        new["metadata"]["finalizers"] = json!([]);
        Ok(new)
    };
    let options = WriteOptions::internal();
    fixture
        .storage
        .update(instance("held"), Part::Main, options, release)
        .await
        .map(|_| ())
        .or_else(|refusal| {
            if refusal.code == 422 {
                Ok(())
            } else {
                Err(refusal)
            }
        })
        .expect("released");
    fixture.until(|| fixture.storage.get(target).is_err()).await;
    fixture
        .until(|| {
            fixture
                .registry
                .resolve("example.com", "v1", "widgets")
                .is_none()
        })
        .await;
}

#[tokio::test]
async fn nothing_is_made_of_a_definition_that_ends() {
    let fixture = Fixture::start();
    fixture.define(&widgets()).await.expect("stored");
    let path = ["example.com", "v1", "widgets"];
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/x"]}});
    fixture.create(path, "", &held).await.expect("stored");
    let definition = fixture.registry.resolve(GROUP, "v1", PLURAL);
    let definition = definition.expect("served");
    let target = Target {
        kind: &definition,
        namespace: "",
        name: "widgets.example.com",
    };
    let deleted = fixture
        .storage
        .delete(target, &DeleteOptions::default())
        .await;
    assert!(matches!(deleted, Ok(Deleted::Marked(_))));
    // The kind is served until its last instance is gone, and a controller makes its objects anew.
    let again = json!({"metadata": {"name": "again"}});
    let refused = fixture.create(path, "", &again).await.unwrap_err();
    assert_eq!(refused.code, 405, "{}", refused.message);
}
