#pragma once

// Early return on a non-OK absl::Status. Errors are values here: no exceptions cross a function of
// ours.

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define RUNNEL_CONCAT_INNER_(a, b) a##b
#define RUNNEL_CONCAT_(a, b) RUNNEL_CONCAT_INNER_(a, b)

// Evaluates an expression of type absl::Status and returns it from the calling function unless it
// is OK.
#define RUNNEL_RETURN_IF_ERROR(expr)                                                       \
  do {                                                                                     \
    if (absl::Status runnel_status_ = (expr); !runnel_status_.ok()) return runnel_status_; \
  } while (false)

// RUNNEL_ASSIGN_OR_RETURN(auto x, F()): x takes the value of an absl::StatusOr, or its error is
// returned.
#define RUNNEL_ASSIGN_OR_RETURN(lhs, expr) \
  RUNNEL_ASSIGN_OR_RETURN_IMPL_(RUNNEL_CONCAT_(runnel_statusor_, __LINE__), lhs, expr)

#define RUNNEL_ASSIGN_OR_RETURN_IMPL_(statusor, lhs, expr) \
  auto statusor = (expr);                                  \
  if (!statusor.ok()) return statusor.status();            \
  lhs = std::move(statusor).value()
