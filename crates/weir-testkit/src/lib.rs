//! Dev only: conformance suite, exact reference models, generators.
