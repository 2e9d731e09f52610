#pragma once

// A pass over a draft (CompileOptions::masks_stash).

#include "kernels/ir/stage/stage_builder.h"

namespace runnel {

// Codes of activations of 4 bits and fewer that the forward makes and the backward reads lie in the
// stash two a byte: packed (kPackCodes) before their first reader, there again (kUnpackCodes) before
// the first one of each backward part. most_bits: of activations, by --precision. The same bytes. Not
// of samples by choice (gates). Behind passes that make values again and keep masks.
void PackCodes(int most_bits, StageDraft& draft);

}  // namespace runnel
