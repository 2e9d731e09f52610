#pragma once

// A worker as the coordinator's tests have it join.

#include <string>

#include "proto/transport/control/control.h"

namespace runnel {

inline WorkerHello SampleHello(const std::string& name) {
  WorkerHello hello;
  hello.name = name;
  hello.data_address = "127.0.0.1:" + name;
  hello.numerics_class = "ref";
  hello.backends = {"ref"};
  hello.recipes = {"fp32"};
  hello.codecs = {{"identity", {}}};
  return hello;
}

}  // namespace runnel
