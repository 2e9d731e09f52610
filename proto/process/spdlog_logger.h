#pragma once

// The programs' logger: lines on standard error, with the program's name, from the level of the
// environment variable RUNNEL_LOG_LEVEL on (debug, info, warn, err; info if it is not set). For
// mains only. Any thread.

#include <memory>

#include "proto/base/log.h"

namespace runnel {

// Make one a process and name.
std::unique_ptr<Logger> MakeSpdlogLogger(const char* name);

}  // namespace runnel
