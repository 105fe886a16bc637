//! The development directory: an authority, certificates, a process file and a kubeconfig, made
//! once and found again, so that `make run` needs nothing that is not in the binary.
//!
//! Not for production: the authority's key lies beside everything else.
//!
//! One process a directory: the second would write its ports into the files of the first.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};

/// Where, and on which ports of 127.0.0.1.
#[derive(Clone, Debug)]
pub struct DevOptions {
    /// The directory.
    pub dir: PathBuf,
    /// The Kubernetes API's port.
    pub api_port: u16,
    /// The etcd API's port.
    pub etcd_port: u16,
    /// The admin API's port.
    pub admin_port: u16,
}

/// Names the process that uses the directory, and is locked while it does.
const LOCK: &str = "dev.lock";

/// What is in the directory, which is this process's for as long as the value lives.
#[derive(Debug)]
pub struct DevFiles {
    /// The process file.
    pub config: PathBuf,
    /// A kubeconfig whose user is in `system:masters`.
    pub kubeconfig: PathBuf,
    _lock: fs::File,
}

/// Why the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DevError {
    /// A file or folder refuses.
    #[error("cannot write {path}: {source}; choose another with --dir, or mend its permissions")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Another process runs on it.
    #[error(
        "{dir} is in use by another `sluice run --dev`{process}; stop it, or choose another directory with --dir"
    )]
    Held {
        /// The directory.
        dir: PathBuf,
        /// Its process id in words, when it could be read.
        process: String,
    },
    /// A certificate cannot be made, or what is there cannot be read.
    #[error(
        "cannot make or read certificates in {path}: {reason}; remove that folder to start anew"
    )]
    Pki {
        /// Where.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// Makes what is missing, and writes the files that depend on the ports.
///
/// # Errors
/// When the directory cannot be written, or what lies in it cannot be read.
pub fn prepare(options: &DevOptions) -> Result<DevFiles, DevError> {
    // Kubeconfigs and process files name their files absolutely.
    let dir = std::path::absolute(&options.dir).unwrap_or_else(|_| options.dir.clone());
    let pki = dir.join("pki");
    for folder in [&dir, &pki, &dir.join("rules")] {
        fs::create_dir_all(folder).map_err(|source| DevError::Io {
            path: folder.clone(),
            source,
        })?;
    }
    let lock = lock(&dir)?;
    make_certificates(&pki)?;
    let files = DevFiles {
        _lock: lock,
        config: dir.join("sluice.yaml"),
        kubeconfig: dir.join("kubeconfig"),
    };
    write(&files.config, &process_file(&dir, options), 0o644)?;
    write(
        &files.kubeconfig,
        &kubeconfig(&pki, options.api_port),
        0o600,
    )?;
    Ok(files)
}

/// The system lets go of the lock with the process, however that ends.
fn lock(dir: &Path) -> Result<fs::File, DevError> {
    let path = dir.join(LOCK);
    let io = |source| DevError::Io {
        path: path.clone(),
        source,
    };
    let mut file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(io)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            let holder = fs::read_to_string(&path).unwrap_or_default();
            let holder = holder.trim();
            return Err(DevError::Held {
                dir: dir.to_owned(),
                process: if holder.is_empty() {
                    String::new()
                } else {
                    format!(" (process {holder})")
                },
            });
        }
        Err(fs::TryLockError::Error(source)) => return Err(io(source)),
    }
    file.set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .map_err(io)?;
    Ok(file)
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), DevError> {
    let io = |source| DevError::Io {
        path: path.to_owned(),
        source,
    };
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(path)
        .map_err(io)?;
    file.write_all(text.as_bytes()).map_err(io)
}

fn make_certificates(pki: &Path) -> Result<(), DevError> {
    let fault = |e: rcgen::Error| DevError::Pki {
        path: pki.to_owned(),
        reason: e.to_string(),
    };
    let (ca_cert, ca_key) = (pki.join("ca.crt"), pki.join("ca.key"));
    if !ca_cert.exists() || !ca_key.exists() {
        let key = KeyPair::generate().map_err(fault)?;
        let cert = authority().self_signed(&key).map_err(fault)?;
        write(&ca_key, &key.serialize_pem(), 0o600)?;
        write(&ca_cert, &cert.pem(), 0o644)?;
    }
    let read = |path: &Path| {
        fs::read_to_string(path).map_err(|source| DevError::Io {
            path: path.to_owned(),
            source,
        })
    };
    let key = KeyPair::from_pem(&read(&ca_key)?).map_err(fault)?;
    let issuer = Issuer::from_ca_cert_pem(&read(&ca_cert)?, key).map_err(fault)?;
    for (name, common_name, group) in [
        ("server", "sluice", ""),
        ("admin", "sluice-admin", "system:masters"),
        ("etcd-client", "etcd-client", ""),
    ] {
        let (cert_path, key_path) = (
            pki.join(format!("{name}.crt")),
            pki.join(format!("{name}.key")),
        );
        if cert_path.exists() && key_path.exists() {
            continue;
        }
        let key = KeyPair::generate().map_err(fault)?;
        let cert = leaf(common_name, group)
            .signed_by(&key, &issuer)
            .map_err(fault)?;
        write(&key_path, &key.serialize_pem(), 0o600)?;
        write(&cert_path, &cert.pem(), 0o644)?;
    }
    Ok(())
}

fn authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "sluice development authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn leaf(common_name: &str, group: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    if !group.is_empty() {
        params
            .distinguished_name
            .push(DnType::OrganizationName, group);
    }
    params.subject_alt_names = vec![SanType::IpAddress(std::net::Ipv4Addr::LOCALHOST.into())];
    for name in [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
    ] {
        if let Ok(name) = name.try_into() {
            params.subject_alt_names.push(SanType::DnsName(name));
        }
    }
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
    ];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    params
}

fn process_file(dir: &Path, options: &DevOptions) -> String {
    let DevOptions {
        dir: _,
        api_port,
        etcd_port,
        admin_port,
    } = options;
    let pki = dir.join("pki");
    let tls = format!(
        "{{ certFile: {0}/server.crt, keyFile: {0}/server.key, clientCAFile: {0}/ca.crt }}",
        pki.display()
    );
    let (data, rules, audit) = (dir.join("data"), dir.join("rules"), dir.join("audit.log"));
    let (ca, data, rules, audit) = (
        pki.join("ca.crt"),
        data.display(),
        rules.display(),
        audit.display(),
    );
    let ca = ca.display();
    format!(
        "# Written by `sluice run --dev` at each start; copy it to change it.\n\
         apiVersion: sluice.io/v1alpha1\n\
         kind: GatewayConfig\n\
         listen:\n  address: 127.0.0.1:{api_port}\n  tls: {tls}\n\
         admin:\n  address: 127.0.0.1:{admin_port}\n  tls: {tls}\n  allowedGroups: [\"system:masters\"]\n\
         metastore:\n  dataDir: {data}\n  etcd:\n    address: 127.0.0.1:{etcd_port}\n    tls: {tls}\n\
         api:\n  default: true\n  clientCAFile: {ca}\n\
         rulesDir: {rules}\n\
         audit:\n  path: {audit}\n\
         drainTimeout: 10s\n\
         log:\n  level: info\n  format: text\n"
    )
}

fn kubeconfig(pki: &Path, port: u16) -> String {
    let file = |name: &str| pki.join(name).display().to_string();
    let text = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "sluice",
        "contexts": [{"name": "sluice", "context": {"cluster": "sluice", "user": "sluice-admin"}}],
        "clusters": [{"name": "sluice", "cluster": {
            "server": format!("https://127.0.0.1:{port}"),
            "certificate-authority": file("ca.crt"),
        }}],
        "users": [{"name": "sluice-admin", "user": {
            "client-certificate": file("admin.crt"),
            "client-key": file("admin.key"),
        }}],
    });
    format!("{text:#}\n")
}

/// What a newcomer is told once everything listens.
#[must_use]
pub fn greeting(files: &DevFiles, options: &DevOptions) -> String {
    let kubeconfig = files.kubeconfig.display();
    format!(
        "\n\
         sluice is up. Kubernetes API on 127.0.0.1:{}, etcd API on 127.0.0.1:{}, admin API on 127.0.0.1:{}\n\
         kubeconfig: {kubeconfig}\n\
         \n\
         Try:\n\
         \x20 kubectl --kubeconfig {kubeconfig} get namespaces\n\
         \x20 kubectl --kubeconfig {kubeconfig} create configmap hello --from-literal=greeting=world\n\
         \x20 kubectl --kubeconfig {kubeconfig} get configmaps --watch\n\
         \n\
         Ctrl-C drains and stops; the data stays.\n",
        options.api_port, options.etcd_port, options.admin_port
    )
}
