//! Admission decisions: quotas, keys, costs and time. It knows neither HTTP nor who a user is, and
//! nothing in it is `async`.
