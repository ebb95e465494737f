#include "penstock/model/torch_kinds.h"

#include <torch/nn/modules.h>

namespace penstock {
namespace {

template <class... M>
std::vector<CallableKind> callable_kinds() {
  return {callable_kind<M>()...};
}

}  // namespace

const std::vector<CallableKind>& torch_kinds() {
  using namespace torch::nn;
  static const std::vector<CallableKind> all = callable_kinds<
      SequentialImpl, LinearImpl, BilinearImpl, IdentityImpl, FlattenImpl, UnflattenImpl, EmbeddingImpl,
      EmbeddingBagImpl, Conv1dImpl, Conv2dImpl, Conv3dImpl, ConvTranspose1dImpl, ConvTranspose2dImpl,
      ConvTranspose3dImpl, BatchNorm1dImpl, BatchNorm2dImpl, BatchNorm3dImpl, InstanceNorm1dImpl, InstanceNorm2dImpl,
      InstanceNorm3dImpl, LayerNormImpl, GroupNormImpl, LocalResponseNormImpl, DropoutImpl, Dropout2dImpl,
      Dropout3dImpl, AlphaDropoutImpl, FeatureAlphaDropoutImpl, ReLUImpl, ReLU6Impl, LeakyReLUImpl, PReLUImpl,
      RReLUImpl, ELUImpl, SELUImpl, CELUImpl, GELUImpl, GLUImpl, SiLUImpl, MishImpl, SigmoidImpl, TanhImpl, SoftmaxImpl,
      LogSoftmaxImpl, Softmax2dImpl, SoftminImpl, SoftplusImpl, SoftshrinkImpl, SoftsignImpl, HardshrinkImpl,
      HardtanhImpl, LogSigmoidImpl, TanhshrinkImpl, ThresholdImpl, MaxPool1dImpl, MaxPool2dImpl, MaxPool3dImpl,
      AvgPool1dImpl, AvgPool2dImpl, AvgPool3dImpl, AdaptiveAvgPool1dImpl, AdaptiveAvgPool2dImpl, AdaptiveAvgPool3dImpl,
      AdaptiveMaxPool1dImpl, AdaptiveMaxPool2dImpl, AdaptiveMaxPool3dImpl, LPPool1dImpl, LPPool2dImpl, ZeroPad1dImpl,
      ZeroPad2dImpl, ZeroPad3dImpl, ConstantPad1dImpl, ConstantPad2dImpl, ConstantPad3dImpl, ReflectionPad1dImpl,
      ReflectionPad2dImpl, ReplicationPad1dImpl, ReplicationPad2dImpl, UpsampleImpl, PixelShuffleImpl,
      PixelUnshuffleImpl, FoldImpl, UnfoldImpl, RNNImpl, LSTMImpl, GRUImpl, MultiheadAttentionImpl,
      TransformerEncoderLayerImpl, CosineSimilarityImpl, PairwiseDistanceImpl, FunctionalImpl>();
  return all;
}

}  // namespace penstock
