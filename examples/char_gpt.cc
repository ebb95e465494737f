// Trains a language model of characters on Shakespeare as a pipeline of two stages, then generates text.
//
//   build/release/examples/char_gpt [STEPS [CURVE.json]]
//     STEPS  default 4000: the validation loss falls below 1.7
//   mpirun -n 2 build/release/examples/char_gpt
//
// The head is tied to the embedding, which is on the other stage. Generation caches keys and values on each stage, and
// several prompts are in flight at once, so that both stages have work.
#include <fstream>
#include <iostream>

#include <penstock/penstock.h>
#include <torch/torch.h>

#include "arguments.h"
#include "data_folder.h"

namespace ps = penstock;

int main(int argc, char** argv) try {
  std::int64_t steps = 4000;
  std::string curve_file;
  Arguments("char_gpt", "Trains a language model of characters on Shakespeare as a pipeline, then generates text.")
      .add("STEPS", steps, "training steps")
      .add("CURVE.json", curve_file, "a file for the losses, one JSON object a line")
      .parse(argc, argv);
  const ps::TextSet text = ps::load_text(data_folder("text"));

  ps::Gpt gpt({.vocabulary = text.vocabulary.size(),
               .context = 64,
               .width = 128,
               .layers = 4,
               .heads = 4,
               .dropout = 0.1,
               .tied_head = true});
  gpt.block(0).recompute = true;  // the first stage holds the most micro-batches, so it recomputes a block
  ps::World world({.stages = 2});
  ps::Pipeline pipeline(world, gpt, ps::next_token_loss, {.micro_batches = 4, .clip_norm = 1.0});
  pipeline.optimize_with(ps::adamw({.learning_rate = 2e-3, .beta2 = 0.99, .weight_decay = 0.1}));
  if (world.is_main())
    for (const std::string& line : describe_stages(pipeline)) std::cout << line << "\n";

  // An epoch has as many random windows as would cover the text; the test reads the last tenth once, in order.
  const ps::LoaderOptions reading = ps::for_this_process(pipeline, {.batch_size = 32, .seed = 1});
  ps::Loader train(ps::text_windows(text.train, {.length = 64}), reading);
  ps::Loader test(ps::text_windows(text.validation, {.length = 64, .random = false}), ps::for_test(reading));

  ps::TrainerOptions options;
  options.epochs = (steps + train.batches_per_epoch() - 1) / train.batches_per_epoch();
  options.max_steps = steps;
  options.learning_rate =
      ps::LearningRatePlan{.schedule = "cosine", .rate = 2e-3, .warmup = steps / 50, .by_epoch = false};
  ps::Trainer trainer(pipeline, options);
  std::ofstream curve;
  if (world.should_log())
    trainer.add_hook(ps::console_hook(std::cout, {.log_every = 100, .is_terminal = ps::stdout_is_terminal()}));
  if (world.is_main()) {
    if (!curve_file.empty()) {
      curve.open(curve_file);
      trainer.add_hook(ps::json_hook(curve));
    }
  }
  trainer.fit(train, &test);

  std::vector<ps::Tokens> prompts;
  for (const char* prompt : {"ROMEO:", "JULIET:\nO ", "KING RICHARD III:", "\n"})
    prompts.push_back(text.vocabulary.encode(prompt));
  ps::Generator generator(pipeline, {.tokens = 300,
                                     .context = 64,
                                     .at_context_end = ps::ContextEnd::restart,
                                     .sampling = {.temperature = 0.8},
                                     .seed = 1});
  const ps::Generated written = generator.generate(prompts);
  if (!world.is_main()) return 0;
  for (const ps::Tokens& sequence : written.sequences)
    std::cout << "\n----\n" << text.vocabulary.decode(sequence) << "\n";
  std::cout << "\n" << written.tokens << " tokens, " << written.tokens_per_second() << " a second\n";
  return 0;
} catch (const std::exception& error) {
  return failed(error);
}
