from penstock.published import main

main()
