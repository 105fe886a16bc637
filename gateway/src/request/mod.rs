//! What a request asks for, read as a kube-apiserver reads it.
