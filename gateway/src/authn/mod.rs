//! Who is calling: certificates, tokens, front-proxy headers, nobody.
