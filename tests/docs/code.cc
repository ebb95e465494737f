// The code in docs/*.md, which arch.docs_code compares with these lines. It is compiled, and not run.
// clang-format off
#include <iostream>

#include <penstock/autotune/autotune.h>
#include <penstock/base/log.h>
#include <penstock/checkpoint/checkpoint.h>
#include <penstock/penstock.h>
#include <penstock/transport/joined_processes.h>
#include <torch/torch.h>
#if PENSTOCK_HAVE_GLOO
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#endif

namespace ps = penstock;

namespace {

[[maybe_unused]] void checkpoints_of_a_trainer(ps::Pipeline& pipeline, ps::Loader& train, ps::Loader& test) {
  ps::Trainer trainer(pipeline, {.epochs = 10});
  trainer.add_hook(std::make_unique<ps::CheckpointHook>(ps::CheckpointOptions{.folder = "run", .every = {.steps = 100}}));
  trainer.resume("run");  // false if there is no checkpoint
  trainer.fit(train, test);
}

[[maybe_unused]] void data(ps::Pipeline& pipeline) {
  const ps::Dataset train = ps::Dataset(ps::load_cifar10(ps::find_data("cifar10"), ps::DataPart::train))
                                .map_inputs([](const ps::BatchTensors& image, ps::SampleRandom& random) {
                                  return ps::BatchTensors(image[0] + 0.1 * random.uniform());  // brighter
                                })
                                .shuffle(1000)
                                .batch(32, /*drop_remainder=*/true);
  ps::Loader loader(train, ps::for_this_process(pipeline, {.seed = 1}));
}

[[maybe_unused]] void token_files() {
  const ps::TokenSet set = ps::load_tokens("train.tokens", 49152);  // the entries of the model's vocabulary
  ps::Loader loader(ps::text_windows(set.train, {.length = 512, .documents = true}), {.batch_size = 8});
}

[[maybe_unused]] void tokenizers() {
  const auto tokenizer = ps::Tokenizer::load("SmolLM2-135M");
  const std::vector<std::int64_t> ids = tokenizer->encode("The capital of France is");
  const std::string text = tokenizer->decode(ids);
  const ps::ChatText chat = ps::render_chat(*tokenizer, {{"user", "What is a pipeline?"}});
}

struct Network : ps::Cell {
  ps::Layer head = add("head", [] { return torch::nn::Linear(4, 2); });
  ps::Value forward(ps::Value x) override { return head(x); }
};

[[maybe_unused]] void fine_tuning(ps::World& world, const ps::Loss& loss, const ps::PipelineOptions& options) {
  Network network;
  network.load_state_dict(ps::read_safetensors("base.safetensors").tensors, ps::Cell::Missing::keep);
  ps::Pipeline pipeline(world, network, loss, options);
  pipeline.freeze("*");
  pipeline.unfreeze("*.adapter.*");  // returns the names of what trains again
  pipeline.optimize_with(ps::adamw({.learning_rate = 1e-4}));
}

[[maybe_unused]] void generating(ps::Pipeline& pipeline, const ps::Tokenizer* tokenizer) {
  ps::Generator generator(pipeline, {.tokens = 64, .context = 512, .stop_tokens = tokenizer->stop_ids()});
  const ps::Generated written = generator.generate({tokenizer->encode("The capital of France is")});
}

[[maybe_unused]] int errors(ps::World& world, ps::Cell& network) {
  try {
    ps::Pipeline pipeline(world, network, ps::cross_entropy, {.schedule = "1f1c"});
  } catch (const ps::Misuse& error) {
    std::cerr << error.what() << "\n";  // nothing has changed: correct the call and repeat it
    return 2;
  } catch (const ps::Failure& error) {
    std::cerr << error.what() << "\n";  // the pipeline and its world cannot be used further
    return 1;
  }
  return 0;
}

void use(const std::vector<torch::Tensor>&) {}

[[maybe_unused]] void inference(ps::Pipeline& pipeline, const torch::Tensor& inputs) {
  ps::InferResult result = pipeline.infer(inputs);            // any number of rows, on every process
  if (result.has_outputs()) use(result.outputs());                  // all outputs of the network; outputs() waits
}

[[maybe_unused]] void sessions(ps::Pipeline& pipeline, const torch::Tensor& beginning, const torch::Tensor& next_tokens) {
  ps::InferenceSession session(pipeline);
  pipeline.infer(beginning, {.session = session});   // [n, T] tokens
  pipeline.infer(next_tokens, {.session = session}); // [n, 1]: each stage has the state of earlier calls
}

namespace cells {

struct Head : ps::Cell {
  ps::Layer norm = add("norm", [] { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({64})); });
  ps::Layer out = add("out", [] { return torch::nn::Linear(64, 10); });
  ps::Value forward(ps::Value x) override { return out(norm(x)); }
};

struct Network : ps::Cell {
  ps::Layer in = add("in", [] { return torch::nn::Linear(784, 64); });
  Head head;                                    // its layers are called head.norm and head.out
  Network() { add("head", head); }
  ps::Value forward(ps::Value x) override { return head(ps::relu(in(ps::flatten(x, 1)))); }
};

}  // namespace cells

struct Attention : ps::Cell {
  std::int64_t heads = 4;
  ps::Layer in = add("in", [] { return torch::nn::Linear(64, 192); });
  ps::Value forward(ps::Value x) override {
    const ps::Value k = x, v = x;
    const auto n = x.size(0), length = x.size(1), width = x.size(-1);
    const ps::Values qkv = in(x).split(width, 2);
    const ps::Value q = qkv[0].view({n, length, heads, width / heads}).transpose(1, 2);  // and so on
    const torch::Tensor later = torch::ones({length, length}, torch::kBool).triu(1);
    return q.matmul(k.transpose(-2, -1)).masked_fill(later, -1e9).softmax(-1).matmul(v);
  }
};

struct Tied : ps::Cell {
  ps::Layer embedding = add("embedding", [] { return torch::nn::Embedding(65, 64); });
  ps::Layer head = add("head", [] { return torch::nn::Linear(torch::nn::LinearOptions(64, 65).bias(false)); });
  Tied() {
    head.tie("weight", embedding, "weight");
  }
  ps::Value forward(ps::Value x) override { return head(embedding(x)); }
};

[[maybe_unused]] void parts_of_a_step(ps::Pipeline& pipeline, const torch::Tensor& images, const torch::Tensor& labels) {
  auto result = pipeline.forward_backward(images, labels);
  pipeline.reduce_gradients();                                  // over ties and replicas; divides by the loss scale, if any
  for (auto& item : pipeline.local_gradients()) std::cout << item.key() << " " << item->norm() << "\n";
  pipeline.step();                                              // clips with clip_norm, and updates
}

[[maybe_unused]] void training(ps::Pipeline& pipeline) {
  const auto reading = ps::for_this_process(pipeline, {.batch_size = 32, .seed = 1});
  ps::Loader train(ps::load_mnist(ps::find_data("mnist"), ps::DataPart::train), reading);
  ps::Loader test(ps::load_mnist(ps::find_data("mnist"), ps::DataPart::test), ps::for_test(reading));
  ps::Trainer trainer(pipeline, {.epochs = 2});    // max_steps ends earlier
  trainer.add_hook(ps::epoch_log_hook(std::cout));
  trainer.fit(train, test);                        // and evaluate(test), predict(data)
}

[[maybe_unused]] void batches(ps::Pipeline& pipeline, const torch::Tensor& images, const torch::Tensor& labels,
                              const torch::Tensor& tokens, const torch::Tensor& mask) {
  pipeline.train_step(images, labels);
  pipeline.train_step({tokens, mask}, labels);           // PipelineOptions::inputs = 2
  pipeline.train_step(images, {});                       // no targets
  ps::Loader loader(ps::tensor_source({tokens, mask}, labels), {.batch_size = 32});
}

[[maybe_unused]] void layouts(ps::PipelineOptions& options) {
  options.batch_dims = {.inputs = {1, std::nullopt},  // [T, n, C]; a [T, T] mask for every micro-batch
                        .targets = {1},
                        .outputs = {1}};              // how infer() joins its rows
}

[[maybe_unused]] void hooks(ps::World& world, ps::Trainer& trainer) {
  struct PrintLoss : ps::Hook {
    void after_step(const ps::StepReport& report) override {
      if (report.step % 10 == 0) std::cout << report.loss << "\n";
    }
  };
  if (world.is_main()) trainer.add_hook(std::make_unique<PrintLoss>());
}

[[maybe_unused]] ps::Loss losses() {
  ps::Loss loss = ps::mean_loss("smooth_l1", [](const torch::Tensor& output, const torch::Tensor& target) {
    return torch::smooth_l1_loss(output, target);
  });
  return loss;
}

[[maybe_unused]] void optimizers(ps::Pipeline& pipeline) {
  const auto adamw = [](double decay) {
    return [decay](auto parameters) {
      return torch::optim::AdamW(parameters, torch::optim::AdamWOptions(3e-4).weight_decay(decay));
    };
  };
  pipeline.optimize_with(ps::ParameterGroups(adamw(0.1)).add(ps::no_decay, adamw(0)).add("embedding.*", adamw(0.01)));
}

#if PENSTOCK_HAVE_GLOO
[[maybe_unused]] void processes_of_a_store(const c10::intrusive_ptr<c10d::Store>& store, int rank) {
  const auto left = c10::make_intrusive<c10d::PrefixStore>("left", store);  // a name for each part
  ps::World world({.stages = 2, .processes = ps::store_processes(left, {.rank = rank, .size = 2})});
}
#endif

[[maybe_unused]] void tuning(ps::World& world, ps::Cell& network, const torch::Tensor& images,
                             const torch::Tensor& labels) {
  ps::PipelineOptions options{.micro_batches = 8,
                              .schedule = "auto",
                              .weight_gradients = ps::WeightGradients::automatic,  // stream or fused, the faster one
                              .kernels = ps::Kernels::tuned};
  options = ps::autotune(world, network, ps::cross_entropy, options, {.sample = images, .sample_targets = labels});
  ps::Pipeline pipeline(world, network, ps::cross_entropy, options);
}

[[maybe_unused]] void tuning_cache(ps::World& world, ps::Cell& network, ps::PipelineOptions options,
                                   const torch::Tensor& images, const torch::Tensor& labels) {
  ps::AutotuneOptions how{.sample = images, .sample_targets = labels};
  how.cache.folder = ps::default_tuning_folder();  // the program's folder
  how.cache.settings = "adam";                     // what the times depend on and Penstock cannot see
  options = ps::autotune(world, network, ps::cross_entropy, options, how);
}

}  // namespace
