#pragma once

// The instructions over codes on backend cpu (kernels/ir/arithmetic/code_rule.h): one row an
// OpCode, byte for byte what ref gives. Values lie channels-last.

#include <cstdint>
#include <map>
#include <memory>

#include "absl/types/span.h"
#include "kernels/backends/cpu/call.h"
#include "kernels/backends/cpu/codes/code_product.h"
#include "kernels/backends/cpu/codes/real_conv.h"

namespace runnel::cpu {

absl::Span<const KernelRow> CodeKernels();

// The products of programs that have the same constants (Program::constants): each is packed once,
// whatever batches the programs take.
class PreparedProducts {
 public:
  PreparedProducts(const Program& program, const Machine& machine);
  // By the offset of its weights among the parameters; null: there is none.
  const CodeProduct* Product(int64_t weights_offset) const;
  const RealConv* Real(int64_t weights_offset) const;
  // Of all of them.
  int64_t bytes() const;

 private:
  std::map<int64_t, std::unique_ptr<CodeProduct>> products_;
  std::map<int64_t, std::unique_ptr<RealConv>> reals_;
};

}  // namespace runnel::cpu
