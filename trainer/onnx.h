#pragma once
// A model as an ONNX file: tokens [batch, context] (int64) in, logits [batch, context, vocabulary] (f32) out, for any batch and any
// context up to the model's. Operator set 17 (LayerNormalization came with it), so that any runtime since 2022 takes it. Only
// operators of the standard; weights lie inside.
#include <string>
#include <tutti/status.h>

#include "trainer/layout.h"
#include "trainer/store.h"

namespace tutti::trainer {

// The bytes of the file. invalid_argument: more than 2 GB, which its encoding cannot hold.
Result<std::string> onnx_file(const ModelConfig& config, const Layout& layout, WholeWeights<float>& weights);

}  // namespace tutti::trainer
